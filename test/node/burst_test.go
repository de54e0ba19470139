package node_test

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// alive is the largest number of calls of a network's ADD that ran at once.
func alive(lines []line, network string) (most int) {
	now := 0
	for _, l := range lines {
		switch {
		case l.Network != network || l.Command != "ADD":
		case l.End:
			now--
		default:
			now++
			most = max(most, now)
		}
	}
	return most
}

func TestT1Burst(t *testing.T) {
	n := newNode(t, setup{primary: quick, settings: object{"connectionLimit": 4}})
	n.nad("slow", n.fake("slow", object{"ADD": object{"sleep": "100ms"}}))
	var pods []*pod
	for i := range 60 {
		pods = append(pods, n.pod(fmt.Sprintf("p%d", i), selecting("slow")))
	}
	early := n.pod("early", nil)
	n.attach(early)
	var burst []*running
	for _, p := range pods {
		burst = append(burst, n.begin("ADD", p))
	}
	n.metric("multus_adds_in_flight 4")
	n.detach(early) // does not wait for the burst
	n.attach(n.pod("plain", nil))
	waiting := 0
	for _, r := range burst {
		select {
		case err := <-r.done:
			r.done <- err
		default:
			waiting++
		}
	}
	if waiting < 20 {
		t.Errorf("a DEL and a plain pod's ADD during the burst were done when only %d of 60 ADDs still waited", waiting)
	}
	for _, r := range burst {
		n.Must(<-r.done)
	}
	n.Same("delegates alive at once", 4, alive(n.calls(), "slow"))
	inParallel(pods, func(p *pod) {
		if err := n.del(p); err != nil {
			t.Errorf("the DEL of %s: %v", p.Name, err)
		}
	})
	n.metric("multus_adds_in_flight 0")
}

func inParallel(pods []*pod, do func(*pod)) {
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(func() { do(p) })
	}
	all.Wait()
}

func TestT1CallerKilledInTheQueue(t *testing.T) {
	n := newNode(t, setup{primary: quick, settings: object{"connectionLimit": 2}})
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	add := func(name string) *running { return n.begin("ADD", n.pod(name, selecting("gated"))) }
	first, second := add("first"), add("second")
	n.metric("multus_adds_in_flight 2")
	killed := add("killed")
	n.metric("multus_adds_waiting 1")
	third := add("third")
	n.metric("multus_adds_waiting 2")
	killed.kill()
	n.metric("multus_adds_waiting 1")
	n.write("open", "")
	for _, r := range []*running{first, second, third} {
		n.Must(<-r.done)
	}
	started := map[string]bool{}
	for _, l := range n.calls() {
		started[l.Container] = true
	}
	n.Same("sandboxes whose delegates ran", 3, len(started))
	n.metric("multus_adds_in_flight 0")
}

// A killed plugin gives its place back, though its delegate still runs.
func TestT1PlaceOfAKilledCaller(t *testing.T) {
	n := newNode(t, setup{primary: quick, settings: object{"connectionLimit": 1}})
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	n.nad("free", n.fake("free", nil))
	p := n.pod("p", selecting("gated"))
	r := n.begin("ADD", p)
	n.awaitCall("ADD gated")
	r.kill()
	n.attach(n.pod("next", selecting("free")))
	n.write("open", "")
	n.detach(p)
}

// overlaps finds calls of one attachment that ran at the same time.
func overlaps(lines []line) (found []string) {
	running := map[string]int{} // pid of the call
	for _, l := range lines {
		key := l.Container + " " + l.Network + " " + l.IfName
		switch {
		case l.End && running[key] == l.PID:
			delete(running, key)
		case !l.End && running[key] != 0:
			found = append(found, l.Command+" "+key)
		case !l.End:
			running[key] = l.PID
		}
	}
	return found
}

// The daemon is killed in the middle of a burst, and half of the plugins too. The
// runtime replays every ADD that it knows no answer of, then deletes all.
func TestT2KillDuringBurst(t *testing.T) {
	n := newNode(t, setup{settings: object{"daemonTimeout": "10s"}})
	n.nad("slow", n.fake("slow", object{"ADD": object{"sleep": "300ms"}}))
	var pods []*pod
	var burst []*running
	for i := range 16 {
		p := n.pod(fmt.Sprintf("p%d", i), selecting("slow"))
		pods = append(pods, p)
		burst = append(burst, n.begin("ADD", p))
	}
	n.awaitCall("ADD slow")
	n.stopDaemon(syscall.SIGKILL)
	for _, r := range burst[:8] {
		r.kill()
	}
	n.startDaemon()
	var failed []*pod
	for i, r := range burst[8:] {
		if err := <-r.done; err != nil {
			n.fails(err, types.ErrTryAgainLater)
			failed = append(failed, pods[8+i])
		}
	}
	inParallel(slices.Concat(pods[:8], failed), func(p *pod) {
		if _, err := n.add(p); err != nil {
			t.Errorf("the replayed ADD of %s: %v", p.Name, err)
		}
	})
	n.Same("calls of one attachment that ran at once", []string(nil), overlaps(n.calls()))
	n.Same("leases", 16, len(n.leases()))
	inParallel(pods, func(p *pod) {
		if err := n.del(p); err != nil {
			t.Errorf("the DEL of %s: %v", p.Name, err)
		}
	})
	n.Same("calls of one attachment that ran at once", []string(nil), overlaps(n.calls()))
	n.clean()
}
