package nodestate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
)

// Level is how a check ended.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Note    Level = "note"    // worth knowing, nothing to do
	Unknown Level = "unknown" // could not be looked at from here
	Wrong   Level = "wrong"
)

// Finding is the outcome of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Found is what was seen, in one line.
	Found string `json:"found"`
	// Symptom and Fix are there where something is wrong: what people notice, and what to do.
	Symptom string `json:"symptom,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

func ok(found string) Finding      { return Finding{Level: OK, Found: found} }
func note(found string) Finding    { return Finding{Level: Note, Found: found} }
func unknown(found string) Finding { return Finding{Level: Unknown, Found: found} }

func wrong(found, symptom, fix string) Finding {
	return Finding{Level: Wrong, Found: found, Symptom: symptom, Fix: fix}
}

// overdue is how long an ADD or DEL that still runs may have begun ago. Both are over
// after two minutes at the latest, with the usual timeouts.
const overdue = 10 * time.Minute

// examination is one diagnosis.
type examination struct {
	State
	now    time.Time
	plugin string // our plugin's file name
	// installed says that there is something of Multus to be examined; else this is a
	// look before an installation.
	installed bool
}

// check is one check, by the name that its finding gets.
type check struct {
	name string
	look func(context.Context) Finding
}

// Diagnose checks what Read saw, and what else can be wrong with the node, one finding for
// each check.
func Diagnose(ctx context.Context, s State, now time.Time) []Finding {
	e := newExamination(s, now)
	return e.run(ctx, []check{
		{"runtime's configuration", e.configuration},
		{"primary network", e.primary},
		{"its plugins", e.primaryPlugins},
		{"our plugin", e.ourPlugin},
		{"daemon", e.daemon},
		{"kubeconfig", e.kubeconfig},
		{"records' folder", e.folder},
		{"locks", e.locks},
		{"damaged records", e.damaged},
		{"unfinished records", e.unfinished},
		{"records of pods that are gone", e.gone},
		{"records of Multus v4", e.v4},
	})
}

func newExamination(s State, now time.Time) *examination {
	e := &examination{State: s, now: now, plugin: s.Config.Plugin}
	if e.plugin == "" {
		e.plugin = "multus-shim"
	}
	e.installed = s.Config.Generated != "" || !s.Daemon.Away || exists(filepath.Join(s.Paths.BinDir, e.plugin))
	return e
}

func (e *examination) run(ctx context.Context, checks []check) []Finding {
	var all []Finding
	for _, c := range checks {
		f := c.look(ctx)
		f.Check = c.name
		all = append(all, f)
	}
	return all
}

// Healthy tells that nothing is wrong.
func Healthy(all []Finding) bool {
	return !slices.ContainsFunc(all, func(f Finding) bool { return f.Level == Wrong })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (e *examination) configuration(context.Context) Finding {
	c, dir := e.Config, e.Paths.ConfDir
	const short = "pods run without their networks"
	switch {
	case c.Error != "":
		return wrong(c.Error, short, "run it where the runtime's folder of configurations is, or name it with --cni-conf-dir")
	case c.NotOurs != "":
		return wrong(c.NotOurs+" in "+dir+" has the name of Multus's file, but does not run Multus", short, "move it away; the daemon writes its own")
	case c.Generated == "" && !e.installed:
		return note("there is no Multus on this node yet; the runtime takes " + orNothing(c.Taken))
	case c.Generated == "":
		return wrong("there is no 00-multus.conf in "+dir+"; the runtime takes "+orNothing(c.Taken), short, "see the line \"daemon\": it writes the file as soon as it has found the primary network")
	case c.Taken != c.Generated:
		return wrong(c.Taken+" sorts before "+c.Generated+", so the runtime takes that", short, "remove "+c.Taken+", or give it a name that sorts after "+c.Generated)
	}
	return ok("the runtime takes " + c.Generated + ", which is Multus's")
}

func orNothing(file string) string {
	if file == "" {
		return "nothing"
	}
	return file
}

func (e *examination) primary(context.Context) Finding {
	p := e.Config.Primary
	switch {
	case e.Config.Error != "":
		return unknown("the runtime's folder cannot be read")
	case p.Error != "":
		return wrong(p.String(), "no pod starts, or the node is NotReady", "see to the primary CNI plugin, which writes this file; with multusMasterCNI, see that it names the right one")
	}
	return ok(p.String())
}

func (e *examination) primaryPlugins(context.Context) Finding {
	conf := e.Config.Primary.conf
	if conf == nil {
		return unknown("no configuration of the primary network to be read here")
	}
	dirs := []string{e.Paths.BinDir}
	if c := e.Config.parsed; c != nil && c.BinDir != config.DefaultBinDir && c.BinDir != "" { // another one is the node's own, and goes first
		dirs = []string{filepath.Join(e.Paths.Root, c.BinDir), e.Paths.BinDir}
	}
	if e.Paths.hidden(e.Paths.BinDir) {
		return unknown(e.Paths.BinDir + " of the node is not to be seen from this container")
	}
	var missing, found []string
	for _, name := range programs(*conf) {
		if slices.ContainsFunc(dirs, func(dir string) bool { return exists(filepath.Join(dir, name)) }) {
			found = append(found, name)
			continue
		}
		missing = append(missing, name)
	}
	if len(missing) > 0 {
		return wrong("no "+strings.Join(missing, ", ")+" in "+strings.Join(dirs, ", "), "no pod starts: \"no executable file of this name\"", "install the primary network's plugins there; the reference plugins come with the runtime or the distribution")
	}
	return ok(strings.Join(found, ", ") + " in " + strings.Join(dirs, ", "))
}

// programs are the plugins that a network runs, IPAM included.
func programs(c cniconf.Config) []string {
	var all []string
	for _, p := range c.Plugins() {
		all = append(all, p.Type)
		var ipam struct {
			Type string `json:"type"`
		}
		if raw, given := p.Object().Get("ipam"); given && json.Unmarshal(raw, &ipam) == nil && ipam.Type != "" {
			all = append(all, ipam.Type)
		}
	}
	return all
}

func (e *examination) ourPlugin(ctx context.Context) Finding {
	path := filepath.Join(e.Paths.BinDir, e.plugin)
	if !e.installed {
		return note("not installed yet")
	}
	if e.Paths.hidden(e.Paths.BinDir) {
		return unknown(e.Paths.BinDir + " of the node is not to be seen from this container")
	}
	const again = "let the pod's init container, install_multus, run again: delete this node's pod of the DaemonSet"
	if !exists(path) {
		return wrong("there is no "+path, "no pod starts: the runtime does not find the plugin", again)
	}
	have, err := pluginVersion(ctx, path)
	if err != nil {
		return wrong(err.Error(), "no pod starts", again)
	}
	if daemon := e.Daemon.State; daemon != nil && have != daemon.Version {
		return wrong(path+" is "+have+", the daemon "+daemon.Version, "none yet: the two understand each other over versions, but what was fixed in one is not in the other", again)
	}
	return ok(path + " is " + have)
}

func (e *examination) daemon(context.Context) Finding {
	d := e.Daemon
	switch {
	case e.Config.Plugin == "multus":
		return note("the thin plugin needs none")
	case !e.installed:
		return note("not installed yet")
	case d.Error != "":
		return wrong(d.Error, "pods with further networks do not start (code 11); plain pods do", "see that the daemon's pod runs on this node, that it is of this version, and that its socketDir is the host's "+e.Paths.SocketDir)
	case d.State.NotReady != "":
		return wrong("it is not ready: "+d.State.NotReady, "pods with further networks do not start (code 11)", "see \"The daemon is not ready\" in docs/troubleshoot.md")
	}
	return ok(fmt.Sprintf("ready; %d ADDs in flight, %d waiting", d.State.InFlight, d.State.Waiting))
}

func (e *examination) folder(context.Context) Finding {
	dir := e.Paths.CNIDir
	if e.RecordsError != "" {
		return wrong(e.RecordsError, "pods do not start or are not deleted", "make "+dir+" a folder that root may read and write")
	}
	daemon := e.Daemon.State
	if daemon == nil || e.Config.Plugin == "multus" {
		return note(fmt.Sprintf("%s, %d records", dir, len(e.Records)))
	}
	here, err := ledger.PlaceOf(dir, daemon.Ledger.BootID)
	if err != nil {
		return unknown("cannot be compared with the daemon's: " + err.Error())
	}
	if here.Device != daemon.Ledger.Device || here.Inode != daemon.Ledger.Inode {
		return wrong("the plugin's "+dir+" is not the folder that the daemon sees at "+daemon.Ledger.Path, "network-status is missing or late; hot-plugged networks are not given back", "mount the host's "+dir+" into the daemon's container at "+daemon.Ledger.Path)
	}
	return ok(fmt.Sprintf("%s is the daemon's too, %d records", dir, len(e.Records)))
}

func (e *examination) locks(context.Context) Finding {
	if !isDir(e.Paths.CNIDir) {
		return note("no " + e.Paths.CNIDir + " yet")
	}
	if err := ledger.New(e.Paths.CNIDir, "").Lockable(); err != nil {
		return wrong(err.Error(), "no pod starts: \"cannot be locked\"", "put "+e.Paths.CNIDir+" on a local file system: one that has flock")
	}
	return ok(e.Paths.CNIDir + " can be locked")
}

func (e *examination) damaged(context.Context) Finding {
	damaged := e.sandboxes(func(r Record) bool { return r.Damaged != "" })
	switch {
	case len(damaged) > 0:
		return wrong(some(damaged), "what these pods held may stay taken", "nothing now: their deletion sets the record aside and uses the runtime's cache; afterwards compare leases with pods. Look for a full or failing disk")
	case e.KeptDamaged > 0:
		return note(fmt.Sprintf("%d were set aside in %s/.damaged: remove them once leases and pods agree", e.KeptDamaged, e.Paths.CNIDir))
	}
	return ok("none")
}

func (e *examination) unfinished(context.Context) Finding {
	late := e.sandboxes(func(r Record) bool {
		return r.Damaged == "" && r.State != attach.Attached && e.now.Sub(r.Changed) > overdue
	})
	if len(late) > 0 {
		return wrong(some(late), "a pod hangs in Terminating, or its networks' addresses stay taken", "nothing, if they are few and recent: later calls of the plugin finish them. One that stays names its cause in the runtime's log")
	}
	return ok("none")
}

func (e *examination) gone(context.Context) Finding {
	gone := e.sandboxes(func(r Record) bool { return r.Gone && e.now.Sub(r.Changed) > overdue })
	if len(gone) > 0 {
		return wrong("the network namespace is gone: "+some(gone), "addresses of their networks stay taken", "after a reboot, wait: the kubelet deletes the old sandboxes. Else, if the runtime does not know the sandbox (crictl pods), free what it held and delete its record in "+e.Paths.CNIDir)
	}
	return ok("none")
}

func (e *examination) v4(context.Context) Finding {
	old := e.sandboxes(func(r Record) bool { return r.Origin == attach.FromV4 })
	if len(old) > 0 {
		return note(some(old) + ": their deletion gives back what v4 attached")
	}
	return ok("none")
}

// sandboxes names the pods, or else the sandboxes, of which something is true.
func (e *examination) sandboxes(is func(Record) bool) []string {
	var all []string
	for _, r := range e.Records {
		if is(r) {
			all = append(all, r.Title())
		}
	}
	return all
}

// Title names a record for people.
func (r Record) Title() string {
	id := r.Sandbox
	if len(id) > 13 { // as crictl shortens
		id = id[:13]
	}
	if r.Pod.Name == "" {
		return "sandbox " + id
	}
	return r.Pod.String() + " (sandbox " + id + ")"
}

// some lists the first few.
func some(all []string) string {
	const few = 5
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}
