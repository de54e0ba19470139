package attach_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// orphan kills an ADD of pod-1 while its delegate runs, which goes on for a time.
func (r *rig) orphan(d time.Duration) {
	r.host.On("ADD net-a", fakehost.Slow(d))
	p := r.host.Process()
	p.CrashAt(6, fakehost.Orphan)
	if p.Run(func() { _, _ = r.engine(p).Add(r.t.Context(), pod1, threeNetworks(pod1)) }) {
		r.t.Fatal("the ADD survived")
	}
	same(r.t, lines("lock pod-1", "load pod-1", "interfaces", "save intent durable", "ADD primary pod-1/eth0", "ADD net-a pod-1/net1"), r.host.Transcript())
}

func TestR11DelWaitsForTheOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		r.orphan(20 * time.Second)
		begin := time.Now()
		r.mustDel(pod1)
		same(t, 20*time.Second, time.Since(begin))
		same(t, lines("lock pod-1", "load pod-1", "interfaces", delThree[0], delThree[1], delThree[2], "remove"), r.host.Transcript())
		r.state(before)
	})
}

func TestR11DelEvictsTheOrphan(t *testing.T) {
	for _, c := range []struct{ limit, want time.Duration }{{0, 30 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			before := r.host.String()
			r.orphan(time.Hour)
			r.LockTimeout = c.limit
			begin := time.Now()
			r.mustDel(pod1)
			same(t, c.want, time.Since(begin))
			same(t, lines("lock pod-1", "evict", "lock pod-1", "load pod-1", "interfaces", delThree[0], delThree[1], delThree[2], "remove"), r.host.Transcript())
			r.state(before)
		})
	}
}

// What holds the lock cannot be ended: it is this process, for instance.
func TestR11DelCannotEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lock, err := r.Ledger.Lock(t.Context(), "pod-1")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		begin := time.Now()
		_, err = r.Del(t.Context(), pod1, "eth0")
		fails(t, err, types.ErrTryAgainLater, "waiting for a lock: context deadline exceeded")
		same(t, 35*time.Second, time.Since(begin))
		r.host.On("evict", fakehost.Fail(errors.New("operation not permitted")))
		_, err = r.Del(t.Context(), pod1, "eth0")
		fails(t, err, types.ErrInternal, "operation not permitted")
	})
}

// A DEL whose own time is up leaves the orphan alone.
func TestR11DelGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		r.orphan(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := r.Del(ctx, pod1, "eth0")
		fails(t, err, types.ErrTryAgainLater, "waiting for a lock: context deadline exceeded")
		same(t, lines("lock pod-1"), r.host.Transcript())
		r.LockTimeout = time.Hour
		r.mustDel(pod1)
		r.state(before)
	})
}

func TestR11DelWithoutLocks(t *testing.T) {
	r := newRig(t)
	r.host.On("lock", fakehost.Fail(errors.New("operation not supported")))
	r.host.Transcript()
	_, err := r.Del(t.Context(), pod0, "eth0")
	fails(t, err, types.ErrInternal, "operation not supported")
	same(t, lines("lock pod-0"), r.host.Transcript())
}

func TestR11AddDoesNotEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.orphan(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_, err := r.Add(ctx, pod1, threeNetworks(pod1))
		fails(t, err, types.ErrTryAgainLater, "pod ns/pod-1: another operation on this sandbox still runs: waiting for a lock: context deadline exceeded")
		same(t, lines("lock pod-1"), r.host.Transcript())
		r.mustDel(pod1)
	})
}

// Sandboxes do not wait for each other.
func TestR11LocksAreBySandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		r.orphan(time.Minute)
		r.host.On("ADD net-a", nil)
		begin := time.Now()
		r.mustAdd(pod2, threeNetworks(pod2))
		r.mustDel(pod2)
		same(t, 0, time.Since(begin))
		r.LockTimeout = time.Hour
		r.mustDel(pod1)
		r.state(before)
	})
}

// ADDs and DELs of one sandbox by many processes at once: one after the other, and
// nothing is left.
func TestT2ManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		for _, name := range []string{"ADD primary", "ADD net-a", "ADD net-b", "DEL net-a"} {
			r.host.On(name, fakehost.Slow(time.Second))
		}
		for range 20 {
			go func() {
				if _, err := r.engine(r.host.Process()).Add(t.Context(), pod1, threeNetworks(pod1)); err != nil {
					t.Errorf("ADD: %v", err)
				}
			}()
			go func() { // a DEL may come before its ADD
				e := r.engine(r.host.Process())
				e.LockTimeout = time.Hour
				_, _ = e.Del(t.Context(), pod1, "eth0")
			}()
		}
		time.Sleep(time.Hour) // in the bubble: until all are done
		r.delThreeTimes()
		r.state(before)
		same(t, 1, r.host.Peak())
	})
}
