package node_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
)

// process is a number that /proc tells of a process: memory in KiB, or another process.
func (n *node) process(pid int, field string) (value int) {
	n.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	n.Must(err)
	_, rest, found := strings.Cut(string(raw), "\n"+field+":")
	if _, err := fmt.Sscan(rest, &value); !found || err != nil {
		n.Fatalf("process %d has no %s: %v", pid, field, err)
	}
	return value
}

// ancestors are the processes above a process. A process is in its parent's cgroup
// unless somebody moves it.
func (n *node) ancestors(pid int) (all []int) {
	n.Helper()
	for pid = n.process(pid, "PPid"); pid > 1; pid = n.process(pid, "PPid") {
		all = append(all, pid)
	}
	return all
}

// running are the calls of the fake plugin that have not ended.
func (n *node) running() (pids []int) {
	n.Helper()
	for _, l := range n.calls() {
		if l.End {
			pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == l.PID })
		} else {
			pids = append(pids, l.PID)
		}
	}
	return pids
}

// Delegates that hold much memory hang in the middle of a burst. None of it is the
// daemon's, no more of them live than are admitted, and who waits costs the daemon little.
func TestT1MemoryInABurst(t *testing.T) {
	const (
		burst  = 100
		hold   = 40 << 10 // KiB, of each delegate
		others = 20 << 10 // of a delegate too
		budget = 10 << 10 // of the daemon, above its memory at rest (design, budgets)
	)
	for name, tt := range map[string]struct {
		settings object
		limit    int
	}{
		"by default": {nil, max(8, 4*runtime.NumCPU())},
		"limited":    {object{"connectionLimit": 4}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{primary: quick, settings: tt.settings})
			n.nad("light", n.fake("light", nil))
			n.nad("heavy", n.fake("heavy", object{"ADD": object{"hold": hold >> 10, "waitFor": n.path("open")}}))
			n.attach(n.pod("first", selecting("light")))
			daemon := n.daemon.Process.Pid
			n.Must(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", daemon), []byte("5"), 0)) // VmHWM begins anew
			rest := n.process(daemon, "VmRSS")

			var all []*running
			for i := range burst {
				all = append(all, n.begin("ADD", n.pod(fmt.Sprintf("p%d", i), selecting("heavy"))))
			}
			admitted := min(tt.limit, burst)
			n.metric(fmt.Sprintf("multus_adds_waiting %d", burst-admitted))
			n.eventually(func() error { // all that will hold memory do
				for _, pid := range n.running() {
					if has := n.process(pid, "VmRSS"); has < hold {
						return fmt.Errorf("a delegate has %d KiB", has)
					}
				}
				if alive := len(n.running()); alive < admitted {
					return fmt.Errorf("%d delegates run", alive)
				}
				return nil
			})
			delegates := n.running()
			n.Same("delegates alive", admitted, len(delegates))
			total := n.process(daemon, "VmRSS")
			for _, pid := range delegates {
				total += n.process(pid, "VmRSS")
				if slices.Contains(n.ancestors(pid), daemon) {
					t.Errorf("the delegate %d is a child of the daemon, and so in its cgroup", pid)
				}
			}
			if most := rest + budget + admitted*(hold+others); total > most {
				t.Errorf("daemon and delegates have %d KiB, want %d at most", total, most)
			}

			n.write("open", "")
			for _, r := range all {
				n.Must(<-r.done)
			}
			n.Same("delegates alive at once", admitted, alive(n.calls(), "heavy"))
			peak := n.process(daemon, "VmHWM")
			t.Logf("the daemon has %d KiB at rest, and %d KiB more at most", rest, peak-rest)
			if peak-rest > budget {
				t.Errorf("the daemon has %d KiB more than at rest, want %d at most", peak-rest, budget)
			}
		})
	}
}

// Who waits longer than its time is told to come again, has run nothing, and succeeds then.
func TestT1OverDeadline(t *testing.T) {
	n := newNode(t, setup{primary: quick, settings: object{"connectionLimit": 1, "addTimeout": "500ms"}})
	n.nad("free", n.fake("free", nil))
	leave := n.occupy(n.pod("first", selecting("free")))
	late := []*pod{n.pod("second", selecting("free")), n.pod("third", selecting("free"))}
	inParallel(late, func(p *pod) {
		_, err := n.add(p)
		n.fails(err, types.ErrTryAgainLater, n.path("run/multus.sock"), "in time")
	})
	n.Same("calls", []string(nil), n.began())
	n.metric("multus_adds_waiting 0")
	leave()
	for _, p := range late {
		n.attach(p)
		n.detach(p)
	}
	n.clean()
}

// occupy takes a pod's place among the admitted ADDs, as a plugin does whose delegate hangs.
func (n *node) occupy(p *pod) (leave func()) {
	n.Helper()
	client := api.NewClient(n.path("run"))
	_, err := client.Plan(n.Context(), 0, api.PlanRequest{
		Protocol: api.Protocol, ContainerID: p.ContainerID, NetNS: p.NetNS, Interface: "eth0", Config: []byte(n.read("conf/00-multus.conf")),
		Args: fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
	})
	n.Must(err)
	return client.Close
}
