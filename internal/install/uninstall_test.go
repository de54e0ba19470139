package install

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/nodestate"
	"github.com/multus-thick/multus/internal/plan"
)

const (
	thick   = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","host":{"primaryFile":"/x/10-a.conflist"}}`
	thin    = `{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{"type":"multus","clusterNetwork":"/x/10-a.conflist"}]}`
	cluster = `{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"bridge"}]}`
)

// node is a node in a folder, with Multus thick on it.
type node struct {
	*testing.T
	dir string
	u   Uninstaller
	out strings.Builder
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{T: t, dir: dir}
	n.u = Uninstaller{Out: &n.out, Settled: time.Millisecond, Paths: nodestate.Paths{
		ConfDir: dir + "/net.d", BinDir: dir + "/bin", CNIDir: dir + "/records", SocketDir: dir + "/run",
	}}
	for path, content := range map[string]string{
		"net.d/00-multus.conf": thick, "net.d/10-a.conflist": cluster, "net.d/multus.d/multus.kubeconfig": "x",
		"bin/multus-shim": "x", "bin/passthru": "x", "bin/bridge": "x", "bin/.multus-shim.1.multus-tmp": "x",
	} {
		n.write(path, content)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.mkdir("run") + "/multus.sock"}) // of a daemon that is gone
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return n
}

func (n *node) mkdir(name string) string {
	n.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		n.Fatal(err)
	}
	return path
}

func (n *node) write(name, content string) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(n.mkdir(filepath.Dir(name)), filepath.Base(name)), []byte(content), 0o600); err != nil {
		n.Fatal(err)
	}
}

// record saves the record of a pod with a network for each name.
func (n *node) record(id, netns string, detached int, networks ...string) {
	n.Helper()
	rec := attach.Record{State: attach.Attached, Sandbox: attach.Sandbox{ContainerID: id, NetNS: netns}}
	rec.Plan = plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "default", Name: id}}
	for i, network := range networks {
		c, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"` + network + `","type":"bridge"}`))
		if err != nil {
			n.Fatal(err)
		}
		rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Network: network, Interface: fmt.Sprint("net", i), Config: c})
		rec.Outcomes = append(rec.Outcomes, attach.Outcome{Detached: i >= len(networks)-detached})
	}
	if err := ledger.New(n.u.Paths.CNIDir, "boot").Save(rec, false); err != nil {
		n.Fatal(err)
	}
}

// refused makes the last network of a pod's record one that refused ADD and DEL.
func (n *node) refused(id string, state attach.State) {
	n.Helper()
	records := ledger.New(n.u.Paths.CNIDir, "boot")
	rec, err := records.Load(id)
	if err != nil {
		n.Fatal(err)
	}
	rec.State = state
	rec.Outcomes[len(rec.Outcomes)-1].Refused = "bridge"
	if err := records.Save(rec, false); err != nil {
		n.Fatal(err)
	}
}

func (n *node) files() []string {
	n.Helper()
	var all []string
	for _, dir := range []string{"net.d", "net.d/multus.d", "bin", "run"} {
		entries, _ := os.ReadDir(filepath.Join(n.dir, dir))
		for _, e := range entries {
			if !e.IsDir() {
				all = append(all, dir+"/"+e.Name())
			}
		}
	}
	return all
}

// run uninstalls, and gives the error and the output.
func (n *node) run() (failure, out string) {
	n.Helper()
	n.out.Reset()
	if err := n.u.Run(n.Context()); err != nil {
		failure = fmt.Sprint(err)
	}
	return strings.ReplaceAll(failure, n.dir, "DIR"), strings.ReplaceAll(n.out.String(), n.dir, "DIR")
}

var installed = []string{
	"net.d/00-multus.conf", "net.d/10-a.conflist", "net.d/multus.d/multus.kubeconfig",
	"bin/.multus-shim.1.multus-tmp", "bin/bridge", "bin/multus-shim", "bin/passthru", "run/multus.sock",
}

const all = `DIR/net.d/00-multus.conf removed
DIR/net.d/multus.d/multus.kubeconfig removed
DIR/bin/multus-shim removed
DIR/bin/passthru removed
DIR/run/multus.sock removed
`

// TestI4_Uninstall: all of ours goes, in order, and nothing else; plain pods of containerd
// keep nobody from it; again is no error.
func TestI4_Uninstall(t *testing.T) {
	n := newNode(t)
	n.record("plain", "/run/netns/cni-1", 0, "cluster")
	n.record("leaving", "/run/netns/cni-2", 1, "cluster", "lan")
	n.record("refused", "/run/netns/cni-3", 0, "cluster", "lan") // it never had lan, and is deleted
	n.refused("refused", attach.Detaching)
	failure, out := n.run()
	want := []string{"", all + "DIR/records is left, with 3 records: remove it unless Multus is to come back\n"}
	if diff := cmp.Diff(want, []string{failure, out}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"net.d/10-a.conflist", "bin/bridge"}, n.files()); diff != "" {
		t.Error(diff)
	}
	for _, dir := range []string{"run", "net.d/multus.d"} {
		if _, err := os.Stat(filepath.Join(n.dir, dir)); err == nil {
			t.Errorf("the empty folder %s is left", dir)
		}
	}
	n.record("web", "", 0, "cluster", "lan") // what --force left
	failure, out = n.run()
	if diff := cmp.Diff([]string{"", "there is nothing of Multus on this node\n"}, []string{failure, out}); diff != "" {
		t.Errorf("again: %s", diff)
	}
}

// TestI4_UninstallThin: also where both forms of the configuration are there.
func TestI4_UninstallThin(t *testing.T) {
	n := newNode(t)
	n.write("net.d/00-multus.conflist", thin)
	n.write("bin/multus", "x")
	n.write("run/certificates/multus-client-2026-01-02-03-04-05.pem", "x")
	if err := os.Symlink("multus-client-2026-01-02-03-04-05.pem", n.dir+"/run/certificates/multus-client-current.pem"); err != nil {
		t.Fatal(err)
	}
	if failure, _ := n.run(); failure != "" {
		t.Error(failure)
	}
	if diff := cmp.Diff([]string{"net.d/10-a.conflist", "bin/bridge"}, n.files()); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Lstat(n.dir + "/run"); err == nil {
		t.Error("the node's key is left, or its folder")
	}
}

// TestI4_UninstallRefuses: with one line for each pod, and the node as it was; --force goes
// on and warns.
func TestI4_UninstallRefuses(t *testing.T) {
	const lost = "of the pods on this node, 1 would leave behind what only Multus gives back (addresses, devices): delete or move them first, or say --force and free it by hand:"
	tests := map[string]struct {
		prepare func(n *node)
		want    string
	}{
		"further networks": {
			func(n *node) { n.record("web", "/run/netns/cni-1", 0, "cluster", "lan", "storage") },
			lost + "\n  default/web (sandbox web): lan on net1, storage on net2",
		},
		"one of them is left": {
			func(n *node) { n.record("web", "/run/netns/cni-1", 1, "cluster", "lan", "storage") },
			lost + "\n  default/web (sandbox web): lan on net1",
		},
		"one that it never had, in a pod that is still to be deleted": {
			func(n *node) {
				n.record("web", "/run/netns/cni-1", 0, "cluster", "lan")
				n.refused("web", attach.Attached)
			},
			lost + "\n  default/web (sandbox web): lan on net1",
		},
		"another primary network": {
			func(n *node) { n.record("web", "/run/netns/cni-1", 0, "other") },
			lost + "\n  default/web (sandbox web): other on net0",
		},
		"CRI-O": {
			func(n *node) {
				n.record("gone", "/run/netns/6c2b", 1, "cluster")
				n.record("web", "/run/netns/6c2a", 0, "cluster")
			},
			lost + "\n  default/web (sandbox web): its runtime, which is not containerd, deletes it through Multus's plugin",
		},
		"damaged": {
			func(n *node) { n.write("records/0123456789abcdef", "x") },
			lost + "\n  sandbox 0123456789abc: its record cannot be read",
		},
		"of Multus v4": {
			func(n *node) {
				n.write("records/c1", `[{"Name":"cluster","Bytes":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoiY2x1c3RlciIsInR5cGUiOiJicmlkZ2UifQ=="},{"Name":"lan","Bytes":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibGFuIiwidHlwZSI6ImJyaWRnZSJ9"}]`)
			},
			lost + "\n  sandbox c1: lan on net1",
		},
		"records that cannot be read": {
			func(n *node) { n.write("records", "a file") },
			"which pods are attached cannot be told: the ledger's folder: open DIR/records: not a directory",
		},
		"nothing else": {
			func(n *node) {
				os.Rename(n.dir+"/net.d/10-a.conflist", n.dir+"/net.d/10-a.conflist.old")
			},
			"without Multus there would be no network configuration in DIR/net.d, and no pod could start: see to the primary CNI plugin, or rename 10-a.conflist.old to 10-a.conflist",
		},
		"another configuration with Multus": {
			func(n *node) { n.write("net.d/05-multus.conf", thick) },
			"without its generated configuration the runtime would take 05-multus.conf in DIR/net.d, which runs Multus too: remove that file first",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.prepare(n)
			before := n.files()
			failure, out := n.run()
			if diff := cmp.Diff([]string{tt.want, ""}, []string{failure, out}); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, n.files()); diff != "" {
				t.Errorf("the node is not as it was: %s", diff)
			}
			n.u.Force = true
			failure, out = n.run()
			if failure != "" || !strings.HasPrefix(out, "warning: "+tt.want+"\n"+all) {
				t.Errorf("with --force: %q\n%s", failure, out)
			}
		})
	}
}

// TestI4_UninstallWhileTheDaemonRuns: it would put all back.
func TestI4_UninstallWhileTheDaemonRuns(t *testing.T) {
	n := newNode(t)
	n.u.Force = true
	socket := n.dir + "/run/" + api.SocketName
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	failure, out := n.run()
	want := "the Multus daemon still runs on this node (DIR/run/multus.sock) and would put all back: delete its DaemonSet first"
	if diff := cmp.Diff([]string{want, ""}, []string{failure, out}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(installed, n.files()); diff != "" {
		t.Error(diff)
	}
}

// putBack writes the configuration again as soon as it is told to be removed, as the thin
// entrypoint does, which has no socket to be known by.
type putBack struct {
	*node
	done bool
}

func (p *putBack) Write(text []byte) (int, error) {
	if !p.done {
		p.done = true
		p.write("net.d/00-multus.conf", thick)
	}
	return p.out.Write(text)
}

func TestI4_UninstallIsUndone(t *testing.T) {
	n := newNode(t)
	n.u.Out, n.u.Settled = &putBack{node: n}, time.Hour
	failure, _ := n.run()
	want := "another program has put DIR/net.d/00-multus.conf back, and nothing else was removed: delete the DaemonSet of Multus first"
	if diff := cmp.Diff(want, failure); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(installed, n.files()); diff != "" {
		t.Error(diff)
	}
}

// TestI4_UninstallLeavesWhatIsNotOurs: a file of our name that runs something else.
func TestI4_UninstallLeavesWhatIsNotOurs(t *testing.T) {
	n := newNode(t)
	n.write("net.d/00-multus.conf", strings.ReplaceAll(thick, "multus-shim", "bridge"))
	failure, out := n.run()
	want := "DIR/net.d/00-multus.conf is left: it does not run Multus\n" + strings.TrimPrefix(all, "DIR/net.d/00-multus.conf removed\n")
	if diff := cmp.Diff([]string{"", want}, []string{failure, out}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"net.d/00-multus.conf", "net.d/10-a.conflist", "bin/bridge"}, n.files()); diff != "" {
		t.Error(diff)
	}
}
