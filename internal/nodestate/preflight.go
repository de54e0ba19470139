package nodestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/multus-thick/multus/internal/confgen"
)

// Preflight tells, one finding for each check, what of an older Multus is on the node, and
// what would be in the way of this one. What it shares with Diagnose is Diagnose's.
func Preflight(ctx context.Context, s State, now time.Time) []Finding {
	e := newExamination(s, now)
	return e.run(ctx, []check{
		{"old configuration", e.oldConfiguration},
		{"other configurations", e.others},
		{"primary network", e.primary},
		{"primary network's name", e.renamed},
		{"its plugins", e.primaryPlugins},
		{"old plugins", e.oldPlugins},
		{"old daemon", e.oldDaemon},
		{"kubeconfig", e.kubeconfig},
		{"owners", e.owners},
		{"records' folder", e.folder},
		{"locks", e.locks},
		{"damaged records", e.damaged},
		{"records of pods that are gone", e.gone},
		{"records of Multus v4", e.v4},
		{"results of Multus v4", e.results},
		{"pods without a record", e.unrecorded},
	})
}

func (e *examination) oldConfiguration(context.Context) Finding {
	c := e.Config
	switch {
	case c.Error != "":
		return wrong(c.Error, "nothing can be installed", "run it where the runtime's folder of configurations is, or name it with --cni-conf-dir")
	case c.NotOurs != "":
		return wrong(c.NotOurs+" in "+e.Paths.ConfDir+" has the name of Multus's file, but does not run Multus", "the daemon replaces it", "move it away, if anybody needs it")
	case c.Generated == "":
		return note("none of Multus's name; the runtime takes " + orNothing(c.Taken))
	}
	return ok(c.Generated + " runs " + c.Plugin + ", and is replaced")
}

// others are further files that run Multus, as installations of v3 with a fixed file leave
// them, and what goes before ours.
func (e *examination) others(context.Context) Finding {
	var running, before []string
	for _, f := range e.Config.files {
		taken, _ := confgen.Taken([]confgen.File{f})
		switch {
		case taken == "" || confgen.OwnFile(f):
		case f.Name < confgen.FileName:
			before = append(before, f.Name)
		case confgen.OwnPlugin(f) != "":
			running = append(running, f.Name)
		}
	}
	const short = "pods run without their networks"
	switch {
	case e.Config.Error != "":
		return unknown("the runtime's folder cannot be read")
	case len(before) > 0:
		return wrong(strings.Join(before, ", ")+" sorts before "+confgen.FileName, short, "remove it, or give it a name that sorts after "+confgen.FileName)
	case len(running) > 0:
		return note(strings.Join(running, ", ") + " runs Multus too; it is never taken for the primary network. Remove it when nobody goes back any more")
	}
	return ok("none that runs Multus, and none that goes before " + confgen.FileName)
}

// renamed: --rename-conf-file has given the primary network's file another name.
func (e *examination) renamed(context.Context) Finding {
	var old []string
	for _, f := range e.Config.files {
		bare, isOld := strings.CutSuffix(f.Name, ".old")
		named := func(g confgen.File) bool { return g.Name == bare }
		if isOld && !slices.ContainsFunc(e.Config.files, named) {
			old = append(old, f.Name+" to "+bare)
		}
	}
	if len(old) > 0 {
		return wrong("the thin entrypoint's --rename-conf-file has renamed it", "the daemon waits for the primary network's file", "rename "+strings.Join(old, ", ")+" in "+e.Paths.ConfDir+", when the thin pod has gone")
	}
	return ok("as its owner gave it")
}

func (e *examination) oldPlugins(ctx context.Context) Finding {
	if e.Paths.hidden(e.Paths.BinDir) {
		return unknown(e.Paths.BinDir + " of the node is not to be seen from this container")
	}
	var all []string
	for _, name := range []string{"multus", "multus-shim", "passthru"} {
		path := filepath.Join(e.Paths.BinDir, name)
		if !exists(path) {
			continue
		}
		told := "of a version that it does not tell"
		if have, err := pluginVersion(ctx, path); err == nil {
			told = have
		}
		all = append(all, name+" ("+told+")")
	}
	if len(all) == 0 {
		return note("none in " + e.Paths.BinDir)
	}
	return note(strings.Join(all, ", ") + " in " + e.Paths.BinDir + ": the thick installation replaces multus-shim and passthru, and leaves multus")
}

func (e *examination) oldDaemon(context.Context) Finding {
	switch d := e.Daemon; {
	case d.Away:
		return note("none answers on " + d.Socket)
	case d.State == nil:
		return ok("one of Multus v4 answers on " + d.Socket)
	default:
		return ok("one of this Multus answers: " + d.State.Version)
	}
}

// owners: the daemon and the installer are user 0 without capabilities.
func (e *examination) owners(context.Context) Finding {
	var others []string
	seen := false
	for _, dir := range []string{e.Paths.ConfDir, e.Paths.BinDir, e.Paths.CNIDir, e.Paths.SocketDir} {
		info, err := os.Stat(dir)
		if err != nil {
			continue // made by the installation
		}
		seen = true
		if s, is := info.Sys().(*syscall.Stat_t); is && (s.Uid != 0 || info.Mode()&0o200 == 0) {
			others = append(others, fmt.Sprintf("%s (user %d, %s)", dir, s.Uid, info.Mode().Perm()))
		}
	}
	switch {
	case len(others) > 0:
		return wrong("not root's to write: "+strings.Join(others, ", "), "the pod cannot write there, for it is user 0 without capabilities", "give the folders to root, or both containers the capability DAC_OVERRIDE")
	case !seen:
		return unknown("none of the folders is to be seen")
	}
	return ok("root's")
}

// results is libcni's cache of what v4 attached: a deletion takes it first, for v4's own
// record may have changed large numbers.
func (e *examination) results(context.Context) Finding {
	var all, lacking int
	for _, r := range e.Records {
		if r.Origin == "" || r.Damaged != "" {
			continue
		}
		all++
		found, _ := filepath.Glob(filepath.Join(e.Paths.CNIDir, "results", "*-"+r.Sandbox+"-*")) // the pattern is sound
		if len(found) < len(r.Attachments) {
			lacking++
		}
	}
	switch {
	case all == 0:
		return ok("none")
	case lacking > 0:
		return note(fmt.Sprintf("%d of %d sandboxes have fewer results than networks: they are deleted with the configuration in v4's record", lacking, all))
	}
	return ok(fmt.Sprintf("all of %d sandboxes", all))
}

// unrecorded are sandboxes that the runtime attached through Multus, by its own cache, and of
// which there is no record: v4's daemon had it in its container.
func (e *examination) unrecorded(context.Context) Finding {
	dir := filepath.Join(filepath.Dir(e.Paths.CNIDir), "results")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return unknown("the runtime's cache " + dir + " is not to be seen")
	}
	if err != nil {
		return unknown(err.Error())
	}
	var lacking []string
	for _, entry := range entries {
		id, pod := throughMultus(filepath.Join(dir, entry.Name()))
		if id != "" && !slices.ContainsFunc(e.Records, func(r Record) bool { return r.Sandbox == id }) {
			lacking = append(lacking, Record{Sandbox: id}.Title()+pod)
		}
	}
	if len(lacking) > 0 {
		return wrong(some(lacking), "what these pods hold of further networks may stay taken when they are deleted", "delete or move them while the old Multus runs: its daemon keeps their records, if it keeps them in its container")
	}
	return ok("none")
}

// throughMultus reads an entry of libcni's cache: the sandbox that was attached through
// Multus, and the pod's name where it is told.
func throughMultus(file string) (id, pod string) {
	var entry struct {
		Kind        string     `json:"kind"`
		ContainerID string     `json:"containerId"`
		Config      []byte     `json:"config"`
		Args        [][]string `json:"cniArgs"`
	}
	raw, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(raw, &entry) != nil || entry.Kind != "cniCacheV1" {
		return "", ""
	}
	if confgen.OwnPlugin(confgen.File{Name: confgen.FileName, Content: entry.Config}) == "" {
		return "", ""
	}
	named := map[string]string{}
	for _, pair := range entry.Args {
		if len(pair) == 2 {
			named[pair[0]] = pair[1]
		}
	}
	if name := named["K8S_POD_NAME"]; name != "" {
		pod = " of " + named["K8S_POD_NAMESPACE"] + "/" + name
	}
	return entry.ContainerID, pod
}
