package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A node boots: the runtime has started the plugin of yesterday, which waits for the
// daemon, and the daemon's pod begins with installing the plugin of today over it.
func TestT4InstallerBesideWaitingPlugins(t *testing.T) {
	n := newNode(t, setup{settings: object{"daemonTimeout": "20s"}})
	n.Must(n.stopDaemon(os.Interrupt))
	n.bin = n.path("bin")
	n.Must(os.Mkdir(n.bin, 0o755))
	program, err := os.ReadFile(filepath.Join(binDir, "multus-shim"))
	n.Must(err)
	old := slices.Concat(program, []byte("yesterday's")) // the loader does not mind
	n.Must(os.WriteFile(n.path("bin/multus-shim"), old, 0o755))

	pods := []*pod{threeNetworks(n)}
	var waiting []*running
	for i := range 4 {
		p := n.pod(fmt.Sprintf("p%d", i), pods[0].Annotations)
		pods, waiting = append(pods, p), append(waiting, n.begin("ADD", p))
	}
	out, err := exec.Command(filepath.Join(binDir, "install_multus"), "--type", "thick", "--source-dir", binDir, "--dest-dir", n.bin).CombinedOutput()
	if err != nil {
		t.Fatalf("the installer: %v: %s", err, out)
	}
	n.Same("the installed plugin", true, n.read("bin/multus-shim") == string(program))
	n.Same("files in its folder", []string{"multus-shim", "passthru"}, n.entries("bin"))
	for _, r := range waiting {
		running, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", r.process.Pid))
		n.Must(err)
		n.Same("a plugin that waits is yesterday's still", true, string(running) == string(old))
		select {
		case err := <-r.done:
			t.Errorf("a plugin that waits was disturbed: %v", err)
		default:
		}
	}
	n.startDaemon()
	for _, r := range waiting {
		n.Must(<-r.done)
	}
	n.attach(pods[0])
	for _, p := range pods {
		n.eventually(func() error { return n.hasStatus(p) })
		n.detach(p)
	}
	n.clean()
}
