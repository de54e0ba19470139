package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/confgen"
	"github.com/multus-thick/multus/internal/nodestate"
)

// settled is how long the generated configuration must stay away: whoever keeps it
// looks every second.
const settled = 3 * time.Second

const look = 50 * time.Millisecond

// kubeconfig is the thin plugin's, below the runtime's folder of configurations.
const kubeconfig = "multus.d/multus.kubeconfig"

// certificates is the folder of the thin plugin's certificate, in the socket's folder.
const certificates = "certificates"

// Uninstaller puts a node back as it was before Multus.
type Uninstaller struct {
	Paths nodestate.Paths
	// Force removes Multus although something would be lost or the node has no other network.
	Force bool
	Out   io.Writer
	// Settled is how long nobody may put the configuration back; 0 is three seconds.
	Settled time.Duration
}

// Run removes Multus from the node, and tells a line for each file. The runtime goes
// back to the primary network with the first step, so that the node makes and deletes
// pods at each instant; only then, and only when nobody has put the configuration
// back, the rest goes: the kubeconfig and its certificate, the plugins, the socket. The records stay.
//
// No pod with further networks slips in between the look and the removal: the daemon, which
// plans them, must be gone.
func (u Uninstaller) Run(ctx context.Context) error {
	state := nodestate.Read(ctx, u.Paths)
	configs, rest := u.configs(state.Config), u.rest()
	if len(configs)+len(rest) == 0 {
		fmt.Fprintln(u.Out, "there is nothing of Multus on this node")
		return nil
	}
	if !state.Daemon.Away {
		return fmt.Errorf("the Multus daemon still runs on this node (%s) and would put all back: delete its DaemonSet first", state.Daemon.Socket)
	}
	next, err := u.next(configs)
	if err = errors.Join(err, lost(state, next)); err != nil {
		if !u.Force {
			return err
		}
		fmt.Fprintln(u.Out, "warning:", err)
	}
	if err := u.removeAll(ctx, configs, rest); err != nil {
		return err
	}
	if n := len(state.Records); n > 0 {
		fmt.Fprintf(u.Out, "%s is left, with %d records: remove it unless Multus is to come back\n", u.Paths.CNIDir, n)
	}
	return nil
}

func (u Uninstaller) removeAll(ctx context.Context, configs, rest []string) error {
	if err := u.remove(configs); err != nil {
		return err
	}
	if err := u.staysAway(ctx, configs); err != nil {
		return err
	}
	if err := u.remove(rest); err != nil {
		return err
	}
	u.tidy()
	return nil
}

// configs are the generated configurations, those of another program under their name left
// out.
func (u Uninstaller) configs(c nodestate.Config) []string {
	if c.NotOurs != "" {
		fmt.Fprintf(u.Out, "%s is left: it does not run Multus\n", filepath.Join(u.Paths.ConfDir, c.NotOurs))
	}
	var all []string
	files, _ := confgen.ReadFolder(u.Paths.ConfDir) // no folder, nothing in it
	for _, f := range files {
		if confgen.OwnFile(f) && confgen.OwnPlugin(f) != "" {
			all = append(all, filepath.Join(u.Paths.ConfDir, f.Name))
		}
	}
	return all
}

// rest is what else there is of an installation, in the order in which it goes.
func (u Uninstaller) rest() []string {
	candidates := []string{filepath.Join(u.Paths.ConfDir, kubeconfig)}
	pairs, _ := filepath.Glob(filepath.Join(u.Paths.SocketDir, certificates, "*.pem")) // the pattern is good
	candidates = append(candidates, pairs...)
	for _, plugin := range []string{"multus-shim", "multus", "passthru"} {
		candidates = append(candidates, filepath.Join(u.Paths.BinDir, plugin))
	}
	candidates = append(candidates, filepath.Join(u.Paths.SocketDir, api.SocketName))
	return slices.DeleteFunc(candidates, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// next is the name of the network that the runtime takes when the generated
// configurations are gone.
func (u Uninstaller) next(configs []string) (string, error) {
	files, err := confgen.ReadFolder(u.Paths.ConfDir)
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f confgen.File) bool { return slices.Contains(configs, filepath.Join(u.Paths.ConfDir, f.Name)) })
	taken, conf := confgen.Taken(files)
	switch {
	case taken == "":
		why := ""
		for _, f := range files {
			if bare, renamed := strings.CutSuffix(f.Name, ".old"); renamed {
				why = ", or rename " + f.Name + " to " + bare
			}
		}
		return "", fmt.Errorf("without Multus there would be no network configuration in %s, and no pod could start: see to the primary CNI plugin%s", u.Paths.ConfDir, why)
	case conf.HasType("multus-shim", "multus"):
		return "", fmt.Errorf("without its generated configuration the runtime would take %s in %s, which runs Multus too: remove that file first", taken, u.Paths.ConfDir)
	}
	return conf.Name(), nil
}

// lost tells which sandboxes hold what nobody would give back. containerd deletes a
// sandbox with the configuration that it has then: next gives back the network of that
// name, further ones are never asked. CRI-O deletes with the configuration of the
// creation, so all its sandboxes need the plugin to the end.
func lost(state nodestate.State, next string) error {
	if state.RecordsError != "" {
		return fmt.Errorf("which pods are attached cannot be told: %s", state.RecordsError)
	}
	var all []string
	for _, r := range state.Records {
		if why := held(r, next); why != "" {
			all = append(all, "\n  "+r.Title()+": "+why)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("of the pods on this node, %d would leave behind what only Multus gives back (addresses, devices): delete or move them first, or say --force and free it by hand:%s", len(all), strings.Join(all, ""))
}

// held says what of a sandbox would be lost; empty for nothing.
func held(r nodestate.Record, next string) string {
	if r.Damaged != "" {
		return "its record cannot be read"
	}
	var networks []string
	left := false
	for i, a := range r.Attachments {
		// The runtime has deleted the pod, and a network that it never had only refuses to
		// clean up, which may be for ever.
		if a.Detached || a.Refused && r.State == attach.Detaching {
			continue
		}
		left = true
		if i > 0 || a.Config != next {
			networks = append(networks, a.Network+" on "+a.Interface)
		}
	}
	switch {
	case len(networks) > 0:
		return strings.Join(networks, ", ")
	case left && !byContainerd(r.NetNS):
		return "its runtime, which is not containerd, deletes it through Multus's plugin"
	}
	return ""
}

// byContainerd tells a sandbox of containerd by the name that it gives to namespaces.
func byContainerd(netns string) bool { return strings.HasPrefix(filepath.Base(netns), "cni-") }

func (u Uninstaller) remove(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove %s: %w", path, err)
		}
		fmt.Fprintln(u.Out, path, "removed")
	}
	return nil
}

// staysAway waits, for the runtime to notice and to see that nobody puts the
// configuration back. If somebody does, the node is as it was.
func (u Uninstaller) staysAway(ctx context.Context, configs []string) error {
	if len(configs) == 0 {
		return nil
	}
	wait := u.Settled
	if wait == 0 {
		wait = settled
	}
	tick, over := time.NewTicker(look), time.NewTimer(wait)
	defer tick.Stop()
	defer over.Stop()
	for {
		for _, path := range configs {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("another program has put %s back, and nothing else was removed: delete the DaemonSet of Multus first", path)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted after the configuration was removed, run it again: %w", ctx.Err())
		case <-over.C:
			return nil
		case <-tick.C:
		}
	}
}

// tidy removes what is empty or half-written by now; where it is not, it does no harm.
func (u Uninstaller) tidy() {
	for _, plugin := range []string{"multus-shim", "multus", "passthru"} {
		_ = atomicfile.RemoveStale(filepath.Join(u.Paths.BinDir, plugin), 0)
	}
	_ = os.Remove(filepath.Dir(filepath.Join(u.Paths.ConfDir, kubeconfig)))
	_ = os.Remove(filepath.Join(u.Paths.SocketDir, certificates))
	_ = os.Remove(u.Paths.SocketDir)
}
