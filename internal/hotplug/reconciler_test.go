package hotplug

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// now is as long as nothing has to be waited for.
const now = 0

// What is selected comes, what is not goes, and the pod's deletion gives back the rest.
func TestI5_FollowsTheAnnotation(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects("a@x1,b@x2", now)
		r.delegates("ADD a c1/x1", "ADD b c1/x2")
		r.heard(
			"count attach ok", "AddedInterface ns/web: x1 [10.97.0.2/24] from ns/a",
			"count attach ok", "AddedInterface ns/web: x2 [10.98.0.2/24] from ns/b",
			"status [primary@eth0 ns/a@x1 ns/b@x2]",
		)
		r.selects("b@x2", now)
		r.delegates("DEL a c1/x1")
		r.heard("count detach ok", "RemovedInterface ns/web: Remove x1 from ns/a", "status [primary@eth0 ns/b@x2]")
		r.settle(time.Hour)
		r.delegates()
		r.heard()
		if _, err := r.engine.Del(r.Context(), sandbox, "eth0"); err != nil {
			r.Fatal(err)
		}
		r.delegates("DEL b c1/x2", "DEL primary c1/eth0")
	})
}

// What fails is tried again, later and later, and what works is not touched. The pod
// says what it lacks until it has it.
func TestI5_FailuresAreTriedAgain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.host.On("ADD a", fakehost.Fail(errBusy))
		r.selects(`[{"name":"a","interface":"x1","io.multus.optional":true},{"name":"b","interface":"x2"}]`, now)
		const failed = "pod ns/web: network ns/a (interface x1): ADD: busy"
		r.delegates("ADD a c1/x1", "DEL a c1/x1", "ADD b c1/x2")
		r.heard(
			"count attach failed", "FailedAddingInterface ns/web: "+failed,
			"count attach ok", "AddedInterface ns/web: x2 [10.98.0.2/24] from ns/b",
			"status [primary@eth0 ns/b@x2]", "condition ns/web: "+failed,
		)
		all, optional := r.state()
		r.same("differences", []int{1, 1}, []int{all, optional})
		r.settle(10 * time.Second)
		r.delegates("ADD a c1/x1", "DEL a c1/x1", "ADD a c1/x1", "DEL a c1/x1", "ADD a c1/x1", "DEL a c1/x1") // after 1, 3 and 7 s
		r.cluster.heard()
		r.host.On("ADD a", nil)
		r.settle(time.Minute)
		r.delegates("ADD a c1/x1")
		r.heard("count attach ok", "AddedInterface ns/web: x1 [10.97.0.2/24] from ns/a", "status [primary@eth0 ns/b@x2 ns/a@x1]", "condition ns/web: ")
		all, optional = r.state()
		r.same("differences", []int{0, 0}, []int{all, optional})

		r.host.On("DEL b", fakehost.Once(fakehost.Fail(errBusy)))
		r.selects(`[{"name":"a","interface":"x1","io.multus.optional":true}]`, time.Minute)
		r.delegates("DEL b c1/x2", "DEL b c1/x2")
		r.heard(
			"count detach failed", "FailedRemovingInterface ns/web: pod ns/web: network ns/b (interface x2): DEL: busy", "condition ns/web: pod ns/web: network ns/b (interface x2): DEL: busy",
			"count detach ok", "RemovedInterface ns/web: Remove x2 from ns/b", "status [primary@eth0 ns/a@x1]", "condition ns/web: ",
		)
	})
}

// A definition that comes ends the waiting.
func TestI5_DefinitionComes(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.cluster.set(func() { r.cluster.missing = map[string]bool{"a": true} })
		r.selects("a@x1", time.Hour)
		r.delegates()
		r.cluster.set(func() { r.cluster.missing = nil })
		r.hot.NetworksChanged()
		r.settle(now)
		r.delegates("ADD a c1/x1")
		r.selects("", now)
		r.host.Delegates()

		// One that fails keeps its turns when a definition comes in between.
		r.host.On("ADD b", fakehost.Fail(errBusy))
		r.cluster.set(func() { r.cluster.missing = map[string]bool{"a": true} })
		r.selects("b@x2,a@x1", 500*time.Millisecond)
		r.cluster.set(func() { r.cluster.missing = nil })
		r.hot.NetworksChanged()
		r.settle(now)
		r.delegates("ADD b c1/x2", "DEL b c1/x2", "ADD b c1/x2", "DEL b c1/x2", "ADD a c1/x1")
		r.host.On("ADD b", nil)
		r.settle(2 * time.Second)
		r.delegates("ADD b c1/x2")
	})
}

// Nothing is taken away on the word of a cache: not while the API is away, not where it
// has another annotation.
func TestI5_CacheTakesNothingAway(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects("a@x1", now)
		r.delegates("ADD a c1/x1")
		r.cluster.set(func() { r.cluster.live = map[string]string{"ns/web": "a@x1"} })
		r.selects("", time.Minute)
		r.delegates()
		r.cluster.set(func() { r.cluster.live, r.cluster.away = nil, true })
		r.settle(time.Minute)
		r.delegates()
		r.cluster.set(func() { r.cluster.away = false })
		r.settle(5 * time.Minute)
		r.delegates("DEL a c1/x1")
	})
}

// Pods that nothing is done for, whatever they select.
func TestI5_LeftAlone(t *testing.T) {
	alter := func(change func(*gather.Pod)) func(*rig) {
		return func(r *rig) {
			r.cluster.set(func() {
				pod := r.cluster.pods["ns/web"]
				change(&pod)
				r.cluster.pods["ns/web"] = pod
			})
		}
	}
	change := func(edit func(*attach.Record)) func(*rig) {
		return func(r *rig) {
			rec, err := r.host.Record("c1")
			if err != nil {
				r.Fatal(err)
			}
			edit(&rec)
			r.host.PutRecord(rec)
		}
	}
	for name, c := range map[string]struct {
		make func(*rig)
		says string
	}{
		"being deleted":     {alter(func(p *gather.Pod) { p.Deleting = true }), ""},
		"static":            {alter(func(p *gather.Pod) { p.Static = true }), ""},
		"made anew":         {alter(func(p *gather.Pod) { p.UID, p.Annotations = "u2", map[string]string{netspec.AnnotationNetworks: "a"} }), ""},
		"its ADD runs":      {change(func(rec *attach.Record) { rec.State = attach.Intent }), ""},
		"its DEL runs":      {change(func(rec *attach.Record) { rec.State = attach.Detaching }), ""},
		"namespace gone":    {func(r *rig) { r.host.RemoveNetNS(sandbox.NetNS) }, ""},
		"caches not synced": {func(r *rig) { r.cluster.set(func() { r.cluster.problem = "not yet" }) }, ""},
		"no record": {func(r *rig) {
			if err := r.host.Process().Remove("c1"); err != nil {
				r.Fatal(err)
			}
		}, "pod ns/web: its sandbox is not in this node's ledger, for Multus v4 made it, or it is being made anew: the networks of such a pod do not change"},
		"v4 attached it": {change(func(rec *attach.Record) {
			rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Role: plan.Secondary, Network: "lan", Interface: "net1", Config: conf("lan", 9)})
			rec.Outcomes = append(rec.Outcomes, attach.Outcome{})
		}), "pod ns/web: Multus v4 attached the network lan, and whether the pod selects it is not known here: make the pod anew"},
		"a slip of the pen": {alter(func(p *gather.Pod) {
			p.Annotations = map[string]string{netspec.AnnotationNetworks: `[{"name":1}]`}
		}), `pod ns/web: network selection element 1, key "name": found the number 1; right would be the name of a NetworkAttachmentDefinition: lower-case letters, digits, "-" and ".", at most 253`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				r.cluster.set(func() {
					r.cluster.pods["ns/web"].Annotations[netspec.AnnotationNetworks] = "a"
				})
				c.make(r)
				r.hot.Changed("ns", "web")
				r.settle(5 * time.Minute)
				r.delegates()
				if c.says == "" {
					r.heard()
				} else {
					r.heard("InterfaceAddRejected ns/web: "+c.says, "condition ns/web: "+c.says)
				}
			})
		})
	}
}

// A restart goes on with what is not done, and undoes what was cut off.
func TestI5_RestartResumes(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects("a@x1,b@x2", now)
		r.host.Delegates()
		r.host.On("ADD c", fakehost.Slow(time.Hour))
		r.host.On("DEL c", fakehost.Fail(errBusy))
		r.selects("b@x2,c@x3", now)
		r.delegates("DEL a c1/x1", "ADD c c1/x3")
		r.stop() // and the undo fails
		r.cluster.heard()
		rec, err := r.host.Record("c1")
		if err != nil {
			r.Fatal(err)
		}
		r.same("recorded", 3, len(rec.Plan.Attachments))
		r.host.On("ADD c", nil)
		r.host.On("DEL c", nil)
		r.host.Delegates()
		r.start()
		r.delegates("DEL c c1/x3", "ADD c c1/x3")
		r.heard(
			"count detach ok", "RemovedInterface ns/web: Remove x3 from ns/c",
			"count attach ok", "AddedInterface ns/web: x3 [10.99.0.2/24] from ns/c",
			"status [primary@eth0 ns/b@x2 ns/c@x3]", "condition ns/web: ",
		)
	})
}

// The status does not keep an interface that went while nobody could say so, and keeps
// what others wrote of interfaces that are there.
func TestI5_StatusOfOthers(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects("a@x1", now)
		r.cluster.heard()
		r.host.SetLink(sandbox.NetNS, "other0", &attach.Facts{})
		var entries []netspec.StatusEntry
		for _, e := range []string{"eth0", "x1", "other0", "gone0"} {
			entries = append(entries, netspec.StatusEntry{Name: "ns/" + e, Interface: e})
		}
		r.cluster.say(web, entries)
		r.settle(now)
		r.heard("status [ns/eth0@eth0 ns/x1@x1 ns/other0@other0 ns/gone0@gone0]", "status [primary@eth0 ns/a@x1 ns/other0@other0]")
	})
}

// Where the daemon may not act, each change is rejected, once.
func TestI5_Forbidden(t *testing.T) {
	inBubble(t, func(o *Options) { o.Forbidden = "no host" }, func(r *rig) {
		const why = "pod ns/web: a change of the networks of a running pod has no effect here: no host"
		r.selects("a@x1", 5*time.Minute)
		r.heard("InterfaceAddRejected ns/web: "+why, "condition ns/web: "+why)
		all, _ := r.state()
		r.same("differences", 1, all)
		r.selects("", 5*time.Minute)
		r.selects("a@x1", 5*time.Minute)
		r.delegates()
		r.heard("condition ns/web: ", "InterfaceAddRejected ns/web: "+why, "condition ns/web: "+why)
	})
}

// Also one that takes everything away.
func TestI5_ForbiddenToDetach(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects("a@x1", now)
		r.stop()
		r.hot.Forbidden = "no host"
		r.start()
		r.cluster.heard()
		r.selects("", 5*time.Minute)
		const why = "pod ns/web: a change of the networks of a running pod has no effect here: no host"
		r.heard("InterfaceAddRejected ns/web: "+why, "condition ns/web: "+why)
	})
}

// Without a place nothing runs.
func TestI5_NotAdmitted(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.Admit = func(context.Context) (func(), error) { return nil, errBusy }
	}, func(r *rig) {
		r.selects("a@x1", now)
		r.delegates()
		r.heard("count attach failed", "FailedAddingInterface ns/web: busy", "condition ns/web: busy")
	})
}

// A pod of the name that was deleted and made anew gets its own sandbox's networks.
func TestT22PodMadeAnew(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		again := web
		again.UID = "u2"
		r.host.On("ADD a", fakehost.Fail(errBusy))
		r.selects("a@x1", now)
		r.host.Delegates()
		r.cluster.put(again, "a@x1")
		r.settle(time.Minute)
		r.delegates()
		r.cluster.heard()
		rec, err := r.host.Record("c1")
		if err != nil {
			r.Fatal(err)
		}
		rec.Plan.Pod.UID, rec.Sandbox.ContainerID, rec.Created = "u2", "c2", rec.Created.Add(time.Minute)
		r.host.PutRecord(rec)
		older := rec
		older.Sandbox.ContainerID, older.Created = "c0", rec.Created.Add(-time.Minute) // its DEL is to come
		r.host.PutRecord(older)
		r.hot.Attached(again, "c2")
		r.hot.Attached(again, "c0")
		r.settle(now)
		r.delegates("ADD a c2/x1", "DEL a c2/x1")
		const failed = "pod ns/web: network ns/a (interface x1): ADD: busy"
		r.heard("count attach failed", "FailedAddingInterface ns/web: "+failed, "condition ns/web: "+failed)
	})
}

// The ledger is looked through where a pod's sandbox is not known, once for what the pod
// says, and not otherwise.
func TestI5_SandboxNobodyToldOf(t *testing.T) {
	var searches atomic.Int64
	var fails atomic.Bool
	inBubble(t, func(o *Options) {
		records := o.Records
		o.Records = func(ctx context.Context) ([]attach.Record, error) {
			searches.Add(1)
			if fails.Load() {
				return nil, errBusy
			}
			return records(ctx)
		}
	}, func(r *rig) {
		r.settle(time.Hour)
		r.same("searches", int64(1), searches.Load())
		rec, err := r.host.Record("c1")
		if err != nil {
			r.Fatal(err)
		}
		rec.Plan.Pod.Name, rec.Plan.Pod.UID, rec.Sandbox.ContainerID = "db", "u2", "c2"
		db := rec.Plan.Pod
		r.cluster.put(db, "a@x1")
		r.settle(time.Hour)
		r.same("searches for one that has not begun", int64(2), searches.Load())
		r.heard()
		fails.Store(true)
		r.host.PutRecord(rec) // and its report is lost
		r.cluster.say(db, entriesOf(rec))
		r.settle(90 * time.Second)
		r.same("searches that failed", int64(3), searches.Load())
		r.delegates()
		fails.Store(false)
		r.settle(time.Minute)
		r.delegates("ADD a c2/x1")
		r.settle(time.Hour)
		r.same("searches", int64(4), searches.Load())

		if err := r.host.Process().Remove("c2"); err != nil {
			r.Fatal(err)
		}
		r.cluster.heard()
		r.cluster.put(db, "a@x1,b@x2")
		r.settle(time.Hour)
		r.same("searches for one that is not there", int64(5), searches.Load())
		const why = "pod ns/db: its sandbox is not in this node's ledger, for Multus v4 made it, or it is being made anew: the networks of such a pod do not change"
		r.heard("InterfaceAddRejected ns/db: "+why, "condition ns/db: "+why)
		r.cluster.put(db, "a@x1")
		r.settle(time.Hour)
		r.heard("condition ns/db: ")
	})
}

// The report of a sandbox was lost: after a reboot, while an earlier one's DEL is to come,
// where no status could be written. What the pod selects later has its effect all the same.
func TestI5_LostReports(t *testing.T) {
	second := func(r *rig) attach.Record {
		rec, err := r.host.Record("c1")
		if err != nil {
			r.Fatal(err)
		}
		rec.Sandbox, rec.Created = attach.Sandbox{ContainerID: "c2", NetNS: "/ns/c2"}, rec.Created.Add(time.Minute)
		r.host.AddNetNS("/ns/c2")
		return rec
	}
	for name, prepare := range map[string]func(*rig){
		"a reboot": func(r *rig) {
			rec := second(r)
			if err := r.host.Process().Remove("c1"); err != nil {
				r.Fatal(err)
			}
			r.stop()
			r.start()
			r.settle(3 * time.Minute) // its turn in the burst comes late
			r.host.PutRecord(rec)
		},
		"an earlier sandbox": func(r *rig) {
			rec := second(r)
			r.host.RemoveNetNS(sandbox.NetNS)
			r.host.PutRecord(rec)
		},
		"no status": func(r *rig) {
			r.host.PutRecord(second(r))
			r.cluster.say(web, nil)
			r.hot.sandboxes.drop(web, "c1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				prepare(r)
				r.settle(10 * time.Minute)
				r.host.Delegates()
				r.selects("a@x1", time.Hour)
				r.delegates("ADD a c2/x1")
			})
		})
	}
}

// What an earlier daemon said of a pod does not stay when it is not so any more.
func TestI5_ConditionOfAnEarlierDaemon(t *testing.T) {
	for name, event := range map[string]bool{"the first look": false, "an event before it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				r.host.On("ADD a", fakehost.Fail(errBusy))
				r.selects("a@x1", now)
				r.stop()
				r.cluster.set(func() { r.cluster.problem = "the caches are not synced" })
				r.cluster.put(web, "")
				r.cluster.heard()
				r.start()
				r.settle(100 * time.Millisecond)
				r.cluster.set(func() { r.cluster.problem = "" })
				if event {
					r.cluster.changed(web)
				}
				r.settle(time.Hour)
				r.heard("condition ns/web: ")
			})
		})
	}
}

// An element asks for something else, and what is attached cannot be given back: nothing is
// said to have been attached. Nor is the primary network's interface.
func TestI5_NothingIsAttachedTwice(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.selects(`[{"name":"a","interface":"x1"}]`, now)
		r.cluster.heard()
		r.host.On("DEL a", fakehost.Fail(errBusy))
		r.selects(`[{"name":"a","interface":"x1","mac":"02:00:00:00:00:01"}]`, 2*time.Second)
		const busy = "pod ns/web: network ns/a (interface x1): DEL: busy"
		r.heard(
			"count detach failed", "FailedRemovingInterface ns/web: "+busy, "condition ns/web: "+busy,
			"count detach failed", "FailedRemovingInterface ns/web: "+busy,
		)
		r.host.On("DEL a", nil)
		r.selects("primary@eth0", now)
		const taken = `pod ns/web: network selection element 1, network ns/primary, key "interface": the interface name "eth0" is already that of another network; right would be a name of its own`
		r.heard(
			"count detach ok", "RemovedInterface ns/web: Remove x1 from ns/a", "InterfaceAddRejected ns/web: "+taken,
			"status [primary@eth0]", "condition ns/web: "+taken,
		)
	})
}
