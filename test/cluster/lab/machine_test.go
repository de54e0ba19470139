package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestI3_MachinesAreFoundByTheirProcesses: of one's own state folder only, and not by
// what merely looks like one.
func TestI3_MachinesAreFoundByTheirProcesses(t *testing.T) {
	proc := t.TempDir()
	const first, child = "Name:\tcluster\nNSpid:\t%\t1\n", "Name:\tcluster\nNSpid:\t%\t7\n"
	for pid, p := range map[string]struct{ cmdline, status string }{
		"10":   {"lab-init /state node1", first},
		"11":   {"lab-join /state node2", first},       // about to become lab-init
		"12":   {"lab-init /state node3", child},       // about to become a program
		"1":    {"lab-init /state node4", "NSpid:\t1"}, // in no namespace of its own
		"14":   {"lab-init /elsewhere node1", first},
		"15":   {"grep lab-init /state node1", first},
		"16":   {"", ""}, // has ended
		"self": {"lab-init /state node5", first},
	} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": strings.ReplaceAll(p.cmdline+" ", " ", "\x00"), "status": strings.ReplaceAll(p.status, "%", pid)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff(map[string]int{"node1": 10, "node2": 11}, must(firstProcesses(proc, "/state"))); d != "" {
		t.Error(d)
	}
}

// TestI3_MountsOfAMachine: the whole list, in order.
func TestI3_MountsOfAMachine(t *testing.T) {
	s := spec{
		Cgroups: []cgroup{{"/groups/memory/x", "memory"}, {"/groups/systemd/x", "none,name=systemd"}},
		Disks:   []disk{{Path: "/etc", Folder: "/s/n/etc", Lower: "/etc"}, {Path: "/var/log", Folder: "/s/n/log"}},
	}
	var got []string
	for _, m := range s.mounts("/s/n") {
		got = append(got, strings.TrimSpace(m.fstype+" "+m.source+" "+m.target+" "+m.data))
	}
	want := []string{
		"/",
		"tmpfs tmpfs /s/n/root mode=755",
		"overlay overlay /s/n/root/root lowerdir=/,upperdir=/s/n/root/upper,workdir=/s/n/root/work",
		"/dev /s/n/root/root/dev",
		"proc proc /s/n/root/root/proc",
		"sysfs sysfs /s/n/root/root/sys",
		"tmpfs tmpfs /s/n/root/root/run mode=755",
		"tmpfs tmpfs /s/n/root/root/tmp mode=1777",
		"tmpfs tmpfs /s/n/root/root/sys/fs/cgroup mode=755",
		"cgroup cgroup /s/n/root/root/sys/fs/cgroup/memory memory",
		"cgroup cgroup /s/n/root/root/sys/fs/cgroup/systemd none,name=systemd",
		"overlay overlay /s/n/root/root/etc lowerdir=/etc,upperdir=/s/n/etc/upper,workdir=/s/n/etc/work",
		"/s/n/log /s/n/root/root/var/log",
		"proc proc /s/n/root/root/run/lab/proc",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestI3_ReadyIsOfThePresentBoot: after a loss of power the API goes on saying Ready,
// by word of the kubelet that is no more.
func TestI3_ReadyIsOfThePresentBoot(t *testing.T) {
	boot := time.Date(2026, 12, 2, 10, 0, 0, 500, time.UTC)
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, after time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: "Why", Message: "because", LastHeartbeatTime: metav1.NewTime(boot.Add(after))}
	}
	got := map[string]string{}
	for name, conditions := range map[string][]corev1.NodeCondition{
		"new":       nil,
		"not ready": {condition(corev1.NodeReady, corev1.ConditionFalse, time.Second)},
		"before":    {condition(corev1.NodeReady, corev1.ConditionTrue, -time.Second)},
		"ready":     {condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, 0), condition(corev1.NodeReady, corev1.ConditionTrue, time.Second)},
	} {
		if err := readySince(&corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}, boot); err != nil {
			got[name] = err.Error()
		}
	}
	want := map[string]string{
		"new": "it has not said so yet", "not ready": "Why: because", "before": "its last word is of 2026-12-02 09:59:59.0000005 +0000 UTC",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestI3_EtcOfANode: is filled once, stays over a boot, and is made anew where it is
// volatile. What the whole machine has in such folders does not show.
func TestI3_EtcOfANode(t *testing.T) {
	c := must(Open(Config{State: t.TempDir(), Cache: t.TempDir(), Report: t.Output()}))
	c.settings.Options = Options{Nodes: 1, Runtime: Debian}
	if err := c.pki().create(map[string]string{"node1": "10.99.0.11"}); err != nil {
		t.Fatal(err)
	}
	node := c.Node(1)
	kept := node.folder("etc", "upper", "cni", "net.d", "20-other.conf")
	boot := func(o BootOptions) (left bool) {
		if err := node.provision(o); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(kept)
		return err == nil
	}
	boot(BootOptions{})
	if d := cmp.Diff("cluster 10.244.1.0/24", networkOf(t, node.folder("etc", "upper", "cni", "net.d", "10-bridge.conflist"))); d != "" {
		t.Error(d)
	}
	if text := must(os.ReadFile(node.folder("etc", "upper", "containerd", "config.toml"))); !strings.Contains(string(text), `sandbox_image = "`+PauseImage+`"`) {
		t.Errorf("%s", text)
	}
	for _, name := range []string{"kubernetes", "cni", "containerd"} {
		value := make([]byte, 1)
		if _, err := unix.Getxattr(node.folder("etc", "upper", name), "trusted.overlay.opaque", value); err != nil || value[0] != 'y' {
			t.Errorf("/etc/%s of the whole machine shows through: %q, %v", name, value, err)
		}
	}
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := []bool{boot(BootOptions{}), boot(BootOptions{VolatileEtc: true})}; !cmp.Equal(got, []bool{true, false}) {
		t.Errorf("a file of before is there: %v", got)
	}
}

// networkOf is the name and the range of the primary network.
func networkOf(t *testing.T, file string) string {
	t.Helper()
	var list struct {
		Name    string
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(must(os.ReadFile(file)), &list); err != nil {
		t.Fatal(err)
	}
	return list.Name + " " + list.Plugins[0].IPAM.Ranges[0][0].Subnet
}

// TestI3_WrongFoldersAreRefused: an overlay's options have no room for them.
func TestI3_WrongFoldersAreRefused(t *testing.T) {
	_, err := Open(Config{State: "/a,b", Cache: "/c"})
	if want := "/a,b: an overlay cannot have a comma, colon or backslash in its path"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestI3_DefaultFoldersComeFromTheEnvironment.
func TestI3_DefaultFoldersComeFromTheEnvironment(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/home/u/.cache")
	got := []string{}
	for _, env := range []map[string]string{{}, {"MULTUS_CLUSTER_STATE": "/s"}, {"MULTUS_CLUSTER_STATE": "/s", "MULTUS_CLUSTER_CACHE": "/c"}} {
		c := must(DefaultConfig(func(name string) string { return env[name] }))
		got = append(got, c.State+" "+c.Cache)
	}
	want := []string{"/home/u/.cache/multus-cluster/state /home/u/.cache/multus-cluster/built", "/s /home/u/.cache/multus-cluster/built", "/s /c"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestI3_LogsOfAClusterThatNeverCameUp: are wanted most.
func TestI3_LogsOfAClusterThatNeverCameUp(t *testing.T) {
	c, to := must(Open(Config{State: t.TempDir(), Cache: t.TempDir()})), t.TempDir()
	for name, text := range map[string]string{"control-plane/log/etcd.log": "e", "node1/log/pods/p/0.log": "p", "node1/machine.json": "m", "pki/ca.key": "k"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(c.file(name)), 0o755), os.WriteFile(c.file(name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CopyLogs(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range append(must(filepath.Glob(to+"/*/*.*")), must(filepath.Glob(to+"/*/*/*/*"))...) {
		got[strings.TrimPrefix(file, to)] = string(must(os.ReadFile(file)))
	}
	if d := cmp.Diff(map[string]string{"/control-plane/etcd.log": "e", "/node1/pods/p/0.log": "p"}, got); d != "" {
		t.Error(d)
	}
}

// TestI3_OneAtATimeChangesACluster: the second waits for the first, and then sees what
// the first has made; also where that was to take the folder away.
func TestI3_OneAtATimeChangesACluster(t *testing.T) {
	config := Config{State: filepath.Join(t.TempDir(), "state"), Cache: t.TempDir()}
	first, second := must(Open(config)), must(Open(config))
	unlock := must(first.lock(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := second.lock(ctx); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatalf("a second one has the lock: %v", err)
	}
	locked := make(chan func())
	go func() { locked <- must(second.lock(t.Context())) }()
	first.settings = settings{Options: Options{Nodes: 3, Runtime: Debian}, Port: 4}
	if err := first.save(); err != nil {
		t.Fatal(err)
	}
	unlock()
	unlock = <-locked
	if d := cmp.Diff(first.settings, second.settings); d != "" {
		t.Error(d)
	}
	removed := must(os.Open(config.State))
	defer removed.Close()
	if err := os.RemoveAll(config.State); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := lockDir(removed); !errors.Is(err, errMoved) {
		t.Errorf("a folder that was removed is locked: %v", err)
	}
}
