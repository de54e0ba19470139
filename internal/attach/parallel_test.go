package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// manyNetworks is a primary network and n others.
func manyNetworks(n int) *plan.Plan {
	p := planOf(pod1, primary())
	for i := range n {
		p.Attachments = append(p.Attachments, network(fmt.Sprintf("n%d", i+1), fmt.Sprintf("net%d", i+1), fmt.Sprintf(`,"subnets":["10.%d.0.0/24"]`, i+11)))
	}
	return p
}

func networksOf(rec attach.Record) []string {
	var all []string
	for i, a := range rec.Plan.Attachments {
		var result struct{ Interfaces []struct{ Name string } }
		_ = json.Unmarshal(rec.Outcomes[i].Result, &result)
		for _, l := range result.Interfaces {
			all = append(all, a.Config.Name()+"/"+l.Name)
		}
	}
	return all
}

// Eight networks, three at a time: the primary alone and first, and results in the
// plan's order though the later ones are done first.
func TestR5Parallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		r.Parallelism = 3
		r.host.On("ADD primary", fakehost.Slow(time.Second))
		for i := range 8 {
			r.host.On(fmt.Sprintf("ADD n%d", i+1), fakehost.Slow(time.Duration(9-i)*time.Second))
		}
		begin := time.Now()
		rec := r.mustAdd(pod1, manyNetworks(8))
		same(t, 3, r.host.Peak())
		same(t, []string{"primary/eth0", "n1/net1", "n2/net2", "n3/net3", "n4/net4", "n5/net5", "n6/net6", "n7/net7", "n8/net8"}, networksOf(rec))
		same(t, 1000, int(rec.Outcomes[0].Millis))
		// n1..n3 take 9, 8 and 7 s, then whoever is free takes the next.
		same(t, 17*time.Second, time.Since(begin).Round(time.Second))
		r.Parallelism = 0
		r.mustDel(pod1)
		r.state(before)
	})
}

func TestR5OneAfterTheOther(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, manyNetworks(8))
	same(t, 1, r.host.Peak())
}

// A network that names another's interface comes after that, the auxiliary chain
// after all.
func TestR5ParallelWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Parallelism = 8
		p := planOf(pod1, primary(), netA(), netB(), network("vlan", "net3", `,"subnets":["10.3.0.0/24"],"links":[{"name":"net1"}]`),
			network("bond", "net4", `,"subnets":["10.4.0.0/24"],"master":"net3"`), network("net11", "net11", `,"subnets":["10.5.0.0/24"]`), network("aux", "net5", ""))
		p.Attachments[6].Role = plan.Auxiliary
		var mu sync.Mutex
		order := make(map[string]time.Duration)
		begin := time.Now()
		for _, a := range p.Attachments {
			r.host.On("ADD "+a.Config.Name(), func(ctx context.Context) error {
				mu.Lock()
				order[a.Config.Name()] = time.Since(begin) / time.Second
				mu.Unlock()
				return fakehost.Slow(time.Second)(ctx)
			})
		}
		r.mustAdd(pod1, p)
		same(t, map[string]time.Duration{"primary": 0, "net-a": 1, "net-b": 1, "net11": 1, "vlan": 2, "bond": 3, "aux": 4}, order)
	})
}

// One fails: those that run finish, the others never start, all that started is
// undone in reverse.
func TestT18ParallelRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		r.Parallelism = 3
		r.host.On("ADD n1", fakehost.Slow(time.Second))
		r.host.On("ADD n2", failAfter(time.Second/2, storeDown)) // the others have begun by then
		r.host.On("ADD n3", fakehost.Slow(2*time.Second))
		begin := time.Now()
		_, err := r.Add(t.Context(), pod1, manyNetworks(5))
		fails(t, err, 117, "pod ns/pod-1: network ns/n2 (interface net2): ADD: address store down")
		same(t, 2*time.Second, time.Since(begin))
		calls := r.host.Calls()
		var undone []string
		for _, c := range calls {
			if c.Verb == "DEL" {
				undone = append(undone, c.Config.Name())
			}
		}
		same(t, []string{"n3", "n2", "n1", "primary"}, undone)
		same(t, 3+4+4, len(calls)) // pod-0's, pod-1's and their undo
		r.state(before)
	})
}

func failAfter(d time.Duration, err error) fakehost.Script {
	return func(context.Context) error { time.Sleep(d); return err } // in a bubble
}

// Of several failures the first of the plan gives the code.
func TestT18ParallelFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Parallelism = 8
		r.host.On("ADD n1", failAfter(2*time.Second, storeDown))
		r.host.On("ADD n3", failAfter(time.Second, errors.New("disk full")))
		_, err := r.Add(t.Context(), pod1, manyNetworks(3))
		fails(t, err, 117, "pod ns/pod-1: network ns/n1 (interface net1): ADD: address store down\n"+
			"pod ns/pod-1: network ns/n3 (interface net3): ADD: disk full")
	})
}
