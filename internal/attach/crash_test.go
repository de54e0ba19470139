package attach_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var crashes = []fakehost.Crash{fakehost.Before, fakehost.After, fakehost.Halfway, fakehost.Orphan}

// everyCrash lets a process that does some work die at each of its steps in each
// way, on a fresh rig each time, and then calls after. The work must have wanted
// steps at least.
func everyCrash(t *testing.T, wanted int, setup func(*rig), work func(*attach.Engine), after func(*rig)) {
	for _, how := range crashes {
		for step := 1; ; step++ {
			survived := false
			t.Run(fmt.Sprintf("%s step %d", how, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					// An orphan takes a second, so that what comes next meets it.
					for _, name := range []string{"ADD primary", "ADD net-a", "ADD net-b", "DEL primary", "DEL net-a", "DEL net-b"} {
						r.host.On(name, fakehost.Slow(time.Second))
					}
					setup(r)
					p := r.host.Process()
					p.CrashAt(step, how)
					survived = p.Run(func() { work(r.engine(p)) })
					after(r)
				})
			})
			if survived {
				if step <= wanted {
					t.Errorf("%s: it has %d steps only, want %d at least", how, step-1, wanted)
				}
				break
			}
		}
	}
}

func (r *rig) addOn(e *attach.Engine) {
	if _, err := e.Add(r.t.Context(), pod1, threeNetworks(pod1)); err != nil {
		r.t.Errorf("ADD: %v", err)
	}
}

// delThreeTimes is what runtimes do: they repeat DEL, also after it succeeded.
func (r *rig) delThreeTimes() {
	r.t.Helper()
	for i := range 3 {
		_, err := r.engine(r.host.Process()).Del(r.t.Context(), pod1, "eth0")
		if err != nil && !errors.Is(err, attach.ErrNoRecord) {
			r.t.Errorf("DEL %d: %v", i+1, err)
		}
	}
}

func TestT14CrashInAddThenDel(t *testing.T) {
	r0, before := (*rig)(nil), ""
	everyCrash(t, 12,
		func(r *rig) { r0, before = r, r.host.String() },
		func(e *attach.Engine) { r0.addOn(e) },
		func(r *rig) { r.delThreeTimes(); r.state(before) })
}

func TestT2CrashInAddThenAddThenDel(t *testing.T) {
	r0, before := (*rig)(nil), ""
	everyCrash(t, 12,
		func(r *rig) { r0, before = r, r.host.String() },
		func(e *attach.Engine) { r0.addOn(e) },
		func(r *rig) {
			r.addOn(r.engine(r.host.Process()))
			got := r.host.String()
			r.delThreeTimes()
			r.state(before)
			if want := "record pod-1 attached primary/eth0 net-a/net1 net-b/net2\n"; !strings.Contains(got, want) {
				r.t.Errorf("the second ADD left\n%swant in it %s", got, want)
			}
		})
}

// An ADD that fails and dies while it undoes.
func TestT14CrashInRollbackThenDel(t *testing.T) {
	r0, before := (*rig)(nil), ""
	everyCrash(t, 14,
		func(r *rig) { r0, before = r, r.host.String(); r.host.On("save attached", fakehost.Fail(storeDown)) },
		func(e *attach.Engine) { _, _ = e.Add(r0.t.Context(), pod1, threeNetworks(pod1)) },
		func(r *rig) { r.delThreeTimes(); r.state(before) })
}

func TestT14CrashInDelThenDel(t *testing.T) {
	r0, before := (*rig)(nil), ""
	everyCrash(t, 6,
		func(r *rig) { r0, before = r, r.host.String(); r.mustAdd(pod1, threeNetworks(pod1)) },
		func(e *attach.Engine) {
			if _, err := e.Del(r0.t.Context(), pod1, "eth0"); err != nil {
				r0.t.Errorf("DEL: %v", err)
			}
		},
		func(r *rig) { r.delThreeTimes(); r.state(before) })
}

// The reboot: namespace and record of a killed ADD, no runtime that calls DEL.
func TestR16CrashInAddThenSweep(t *testing.T) {
	var r0 *rig
	var gone string
	everyCrash(t, 12,
		func(r *rig) { r0 = r },
		func(e *attach.Engine) { r0.addOn(e) },
		func(r *rig) {
			time.Sleep(5 * time.Second) // in the bubble: the orphan ends
			attached := strings.Contains(r.host.String(), "record pod-1 attached")
			r.host.RemoveNetNS(pod1.NetNS)
			if err := r.engine(r.host.Process()).Sweep(r.t.Context(), 2); err != nil {
				r.t.Errorf("Sweep: %v", err)
			}
			if attached {
				return // not for the sweep to judge
			}
			fresh := newRig(r.t)
			fresh.host.RemoveNetNS(pod1.NetNS)
			gone = fresh.host.String()
			r.state(gone)
		})
}

func TestT14CrashInPlug(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(*rig)
	}{
		{"then DEL", func(*rig) {}},
		{"then Plug again", func(r *rig) {
			if _, err := r.engine(r.host.Process()).Plug(r.t.Context(), pod1, planOf(pod1).Pod, netB()); err != nil {
				r.t.Errorf("Plug: %v", err)
			}
		}},
		{"then Unplug", func(r *rig) {
			if err := r.engine(r.host.Process()).Unplug(r.t.Context(), pod1, planOf(pod1).Pod, netB()); err != nil {
				r.t.Errorf("Unplug: %v", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r0, before := (*rig)(nil), ""
			everyCrash(t, 7,
				func(r *rig) { r0, before = r, r.host.String(); r.mustAdd(pod1, planOf(pod1, primary(), netA())) },
				func(e *attach.Engine) {
					if _, err := e.Plug(r0.t.Context(), pod1, planOf(pod1).Pod, netB()); err != nil {
						r0.t.Errorf("Plug: %v", err)
					}
				},
				func(r *rig) { c.after(r); r.delThreeTimes(); r.state(before) })
		})
	}
}

// A process that dies with several delegates under way.
func TestT2CrashInParallelAdd(t *testing.T) {
	r0, before := (*rig)(nil), ""
	everyCrash(t, 12,
		func(r *rig) { r0, before = r, r.host.String() },
		func(e *attach.Engine) { e.Parallelism = 8; r0.addOn(e) },
		func(r *rig) { r.delThreeTimes(); r.state(before) })
}
