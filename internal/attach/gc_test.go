package attach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// later moves the engine's clock to a time after the records were made.
func (r *rig) later(d time.Duration) { r.Now = func() time.Time { return birth.Add(d) } }

func valid(ids ...string) []types.GCAttachment {
	var all []types.GCAttachment
	for _, id := range ids {
		all = append(all, types.GCAttachment{ContainerID: id, IfName: "eth0"})
	}
	return all
}

// gc runs GC and returns what delegates were asked.
func (r *rig) gc(all []types.GCAttachment) (string, error) {
	r.t.Helper()
	r.host.Transcript()
	config := primary().Config
	err := r.GC(r.t.Context(), &config, all)
	return r.host.Delegates(), err
}

// pod-0 lives, pod-1 is stale, and some addresses belong to nobody.
func TestT25GC(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	// Somebody's addresses without a record, and those of a hot-plugged network.
	r.mustAdd(pod2, planOf(pod2, primary(), netA()))
	r.host.RemoveNetNS(pod2.NetNS)
	if err := r.Ledger.Remove("pod-2"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Plug(t.Context(), pod0, planOf(pod0).Pod, network("net-c", "net9", `,"subnets":["10.3.0.0/24"]`)); err != nil {
		t.Fatal(err)
	}
	r.later(time.Minute)
	got, err := r.gc(valid("pod-0"))
	if err != nil {
		t.Errorf("GC: %v", err)
	}
	same(t, lines(append(delThree,
		"GC primary [pod-0/eth0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]", "GC net-c [pod-0/net9]")...), got)
	if err := r.Unplug(t.Context(), pod0, planOf(pod0).Pod, network("net-c", "net9", "")); err != nil {
		t.Fatal(err)
	}
	r.state(strings.Replace(before, "netns "+pod2.NetNS+"\n", "", 1))
}

func TestT25GCSpares(t *testing.T) {
	all := []string{"GC primary [pod-0/eth0 pod-1/eth0]", "GC net-a [pod-0/net1 pod-1/net1]", "GC net-b [pod-0/net2 pod-1/net2]"}
	for _, c := range []struct {
		name  string
		setup func(*rig, attach.Record)
	}{
		{"a sandbox that is brand-new", func(r *rig, _ attach.Record) { r.later(time.Minute - 1) }},
		{"what v4 left", func(r *rig, rec attach.Record) { rec.Origin = attach.FromV4; r.host.PutRecord(rec) }},
		{"what only libcni's cache knows", func(r *rig, rec attach.Record) { rec.Origin = attach.Cache; r.host.PutRecord(rec) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			rec := r.mustAdd(pod1, threeNetworks(pod1))
			r.later(time.Hour)
			c.setup(r, rec)
			before := r.host.String()
			got, err := r.gc(valid("pod-0"))
			if err != nil {
				t.Errorf("GC: %v", err)
			}
			same(t, lines(all...), got)
			r.state(before)
		})
	}
}

// An intent counts as in use; what DEL has given back already does not, what it could
// not give back does; the auxiliary chain is no network.
func TestR15GCValidLists(t *testing.T) {
	r := newRig(t)
	aux := network("aux", "net9", "")
	aux.Role = plan.Auxiliary
	rec := r.mustAdd(pod1, planOf(pod1, primary(), netA(), aux))
	rec.State, rec.Outcomes = attach.Intent, nil
	r.host.PutRecord(rec)
	r.mustAdd(pod2, threeNetworks(pod2))
	r.host.On("DEL net-b", fakehost.Fail(storeDown))
	r.later(time.Hour)
	got, err := r.gc(valid("pod-1", "pod-0"))
	fails(t, err, 117, "pod ns/pod-2: network ns/net-b (interface net2): DEL: address store down")
	same(t, lines(
		"DEL net-b pod-2/net2", "DEL net-a pod-2/net1", "DEL primary pod-2/eth0",
		"GC primary [pod-1/eth0 pod-0/eth0]", "GC net-a [pod-0/net1 pod-1/net1]", "GC net-b [pod-0/net2 pod-2/net2]",
	), got)
}

// A sandbox that the runtime names and nothing is recorded of may have any network:
// the primary network, of which the runtime's list tells all, collects alone.
func TestR15GCStranger(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	r.later(time.Hour)
	got, err := r.gc(valid("pod-0", "pod-1", "pod-x"))
	if err != nil {
		t.Errorf("GC: %v", err)
	}
	same(t, lines("GC primary [pod-0/eth0 pod-1/eth0 pod-x/eth0]"), got)
}

func TestR15GCUnknown(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*rig)
		valid []types.GCAttachment
		want  string
	}{
		{"damaged record", func(r *rig) { r.host.Damage("pod-0") }, valid("pod-0"), "sandbox pod-0: the record of the sandbox is damaged"},
		{"v4 does not tell the primary's interface", func(r *rig) {
			rec, _ := r.host.Record("pod-0")
			rec.Origin, rec.Plan.Attachments[0].Interface = attach.FromV4, ""
			r.host.PutRecord(rec)
		}, nil, "sandbox pod-0: neither its record nor the runtime tells its primary network's interface"},
		{"the ledger cannot be listed", func(r *rig) { r.host.On("list", fakehost.Fail(errors.New("input/output error"))) }, valid("pod-0"), "input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.setup(r)
			before := r.host.String()
			r.later(time.Hour)
			got, err := r.gc(c.valid)
			if want := "no network collects its garbage, because not all attachments are known: " + c.want; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("GC: %v, want %s", err, want)
			}
			same(t, "", got)
			r.state(before)
		})
	}
}

// The primary network is not known: fine as long as all sandboxes are recorded.
func TestR15GCWithoutPrimary(t *testing.T) {
	r := newRig(t)
	r.host.Transcript()
	if err := r.GC(t.Context(), nil, valid("pod-0")); err != nil {
		t.Errorf("GC: %v", err)
	}
	r.delegates("GC primary [pod-0/eth0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]")
	fails(t, r.GC(t.Context(), nil, valid("pod-0", "pod-x")), types.ErrInternal, "no network collects its garbage, "+
		"because not all attachments are known: sandbox pod-x has no record, and the primary network is not known")
	r.delegates()
}

// v4's primary network is valid under the interface that the runtime names.
func TestR15GCNamesV4sInterface(t *testing.T) {
	r := newRig(t)
	rec, _ := r.host.Record("pod-0")
	rec.Origin, rec.Plan.Attachments[0].Interface = attach.FromV4, ""
	r.host.PutRecord(rec)
	got, err := r.gc([]types.GCAttachment{{ContainerID: "pod-0", IfName: "ens0"}})
	same(t, lines("GC primary [pod-0/ens0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]")+"<nil>", got+fmt.Sprint(err))
}

// stray lists a file that turns out to be no record.
type stray struct{ *fakehost.Process }

func (s stray) All() ([]attach.Listed, error) {
	all, err := s.Process.All()
	return append(all, attach.Listed{ContainerID: "stray", Err: attach.ErrNoRecord}), err
}

func TestR15GCOfAStrayFile(t *testing.T) {
	r := newRig(t)
	r.Ledger = stray{r.host.Process()}
	r.later(time.Hour)
	got, err := r.gc(valid("pod-0"))
	same(t, lines("GC primary [pod-0/eth0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]")+"<nil>", got+fmt.Sprint(err))
}

func TestT25GCOfOneNetworkFails(t *testing.T) {
	r := newRig(t)
	r.host.On("GC net-a", fakehost.Fail(storeDown))
	got, err := r.gc(valid("pod-0"))
	fails(t, err, 117, "network net-a: GC: address store down")
	same(t, lines("GC primary [pod-0/eth0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]"), got)
}

// While networks collect, no ADD runs; a stale sandbox that is busy is left alone.
func TestR11GCExcludesAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		collecting, goOn := make(chan struct{}), make(chan struct{})
		r.host.On("GC primary", func(context.Context) error { close(collecting); <-goOn; return nil })
		go func() {
			<-collecting
			r.host.Transcript()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := r.engine(r.host.Process()).Add(ctx, pod1, threeNetworks(pod1))
			fails(t, err, types.ErrTryAgainLater, "pod ns/pod-1: another operation on this sandbox still runs: waiting for a lock: context deadline exceeded")
			same(t, lines("lock pod-1"), r.host.Transcript())
			close(goOn)
		}()
		got, err := r.gc(valid("pod-0"))
		same(t, lines("GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]")+"<nil>", got+fmt.Sprint(err))
	})
}

func TestR11GCWithoutTheLock(t *testing.T) {
	r := newRig(t)
	r.host.On("lock all", fakehost.Fail(errors.New("operation not supported")))
	got, err := r.gc(valid("pod-0"))
	fails(t, err, types.ErrInternal, "no network collects its garbage: operation not supported")
	same(t, "", got)
}

func TestR11GCLeavesTheBusyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mustAdd(pod1, threeNetworks(pod1))
		lock, err := r.Ledger.Lock(t.Context(), "pod-1")
		if err != nil {
			t.Fatal(err)
		}
		go func() { time.Sleep(time.Second); lock.Release() }() // in the bubble
		r.later(time.Hour)
		got, err := r.gc(valid("pod-0"))
		same(t, lines("GC primary [pod-0/eth0 pod-1/eth0]", "GC net-a [pod-0/net1 pod-1/net1]", "GC net-b [pod-0/net2 pod-1/net2]")+"<nil>", got+fmt.Sprint(err))
	})
}

func TestR17Status(t *testing.T) {
	r := newRig(t)
	if err := r.Status(t.Context(), primary().Config); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	same(t, lines("STATUS primary"), r.host.Transcript())
	r.host.On("STATUS primary", fakehost.Fail(types.NewError(types.ErrPluginNotAvailable, "no addresses left", "")))
	fails(t, r.Status(t.Context(), primary().Config), types.ErrPluginNotAvailable, "no addresses left")
}

// Three sandboxes to finish, two at a time; those that are attached, that may still
// get a DEL, that are busy or unreadable are neither touched nor counted.
func TestR16Sweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.host.String()
		put := func(id string, state attach.State, netns string) {
			sb := attach.Sandbox{ContainerID: id, NetNS: netns}
			r.host.PutRecord(attach.Record{State: state, Created: birth, Sandbox: sb, Plan: *planOf(sb, primary(), netA())})
		}
		put("a1", attach.Intent, pod1.NetNS) // its namespace lives
		put("a2", attach.Detaching, pod2.NetNS)
		r.host.Damage("a3")
		put("a4", attach.Intent, "/run/netns/gone")
		put("a5", attach.Detaching, "")
		put("a6", attach.Detaching, "") // busy
		lock, err := r.Ledger.Lock(t.Context(), "a6")
		if err != nil {
			t.Fatal(err)
		}
		r.host.Transcript()
		sweep := func(want ...string) {
			t.Helper()
			if err := r.Sweep(t.Context(), 2); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			r.delegates(want...)
		}
		sweep("DEL net-a a2/net1", "DEL primary a2/eth0", "DEL net-a a4/net1", "DEL primary a4/eth0")
		sweep("DEL net-a a5/net1", "DEL primary a5/eth0")
		sweep()
		lock.Release()
		r.state(before[:strings.Index(before, "record ")] + "record a1 intent primary/eth0 net-a/net1\nrecord a3 damaged\n" +
			"record a6 detaching primary/eth0 net-a/net1\n" + before[strings.Index(before, "record "):])
	})
}

func TestR16SweepFailsAgain(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.On("DEL net-a", fakehost.Fail(storeDown))
	_, err := r.Del(t.Context(), pod1, "eth0")
	fails(t, err, 117, "pod ns/pod-1: network ns/net-a (interface net1): DEL: address store down")
	fails(t, r.Sweep(t.Context(), 2), 117, "pod ns/pod-1: network ns/net-a (interface net1): DEL: address store down")
	r.host.On("DEL net-a", nil)
	r.host.Transcript()
	if err := r.Sweep(t.Context(), 2); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	r.delegates("DEL net-a pod-1/net1")
	r.state(before)
}

func TestR16SweepCannotLook(t *testing.T) {
	r := newRig(t)
	r.host.On("unfinished", fakehost.Fail(errors.New("input/output error")))
	fails(t, r.Sweep(t.Context(), 2), types.ErrInternal, "input/output error")
}

// The runtime's list is enough for what v4 left once its namespace is gone, and for what
// only libcni's cache knows.
func TestI5_GCOfWhatOthersLeft(t *testing.T) {
	r := newRig(t)
	before := strings.Replace(r.host.String(), "netns "+pod1.NetNS+"\n", "", 1)
	before = strings.Replace(before, "netns "+pod2.NetNS+"\n", "", 1)
	rec := r.mustAdd(pod1, threeNetworks(pod1))
	rec.Origin = attach.FromV4
	r.host.PutRecord(rec)
	r.mustAdd(pod2, planOf(pod2, primary(), netA()))
	r.host.DropRecord("pod-2")
	r.host.RemoveNetNS(pod1.NetNS)
	r.host.RemoveNetNS(pod2.NetNS)
	got, err := r.gc(valid("pod-0"))
	if err != nil {
		t.Errorf("GC: %v", err)
	}
	same(t, lines(append(delThree, "DEL primary pod-2/eth0", "DEL net-a pod-2/net1",
		"GC primary [pod-0/eth0]", "GC net-a [pod-0/net1]", "GC net-b [pod-0/net2]")...), got)
	r.state(before)
}

// leaveBehind makes sandboxes of the network "stuck" and then of "works", whose namespaces
// are gone, and of which records are left or libcni's results alone.
func (r *rig) leaveBehind(stuck, works int, recorded bool) {
	r.t.Helper()
	for i := range stuck + works {
		sb := attach.Sandbox{ContainerID: fmt.Sprintf("pod-%03d", i), NetNS: fmt.Sprintf("/run/netns/pod-%03d", i)}
		name := "stuck"
		if i >= stuck {
			name = "works"
		}
		r.host.AddNetNS(sb.NetNS)
		r.mustAdd(sb, planOf(sb, network(name, "net1", "")))
		if !recorded {
			r.host.DropRecord(sb.ContainerID)
		}
		r.host.RemoveNetNS(sb.NetNS)
	}
}

// A network whose results cannot be given back does not hold up the others, and a GC that
// has given back enough leaves the rest to the next.
func TestI5_GCOfVeryManyResults(t *testing.T) {
	r := newRig(t)
	r.leaveBehind(300, 250, false)
	r.host.On("DEL stuck", fakehost.Fail(storeDown))
	r.host.Delegates()
	for _, want := range []string{"20 failed, 200 given back", "20 failed, 50 given back", "20 failed, 0 given back"} {
		err := r.GC(t.Context(), nil, nil)
		same(t, want, fmt.Sprintf("%d failed, %d given back", strings.Count(fmt.Sprint(err), "address store down"), strings.Count(r.host.Delegates(), "DEL works")))
	}
}

// A network that hangs takes its time once: the records and results of others are given back
// in the time that one GC has, and their networks collect.
func TestI5_GCOfANetworkThatHangs(t *testing.T) {
	for name, recorded := range map[string]bool{"records": true, "results": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.leaveBehind(10, 10, recorded)
				r.mustAdd(pod2, planOf(pod2, network("works", "net1", "")))
				r.host.On("DEL stuck", fakehost.Slow(time.Hour))
				r.host.Delegates()
				r.later(time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
				defer cancel()
				_ = r.GC(ctx, nil, valid("pod-2"))
				ran := r.host.Delegates()
				same(t, "1 hung, 10 given back, 1 collected", fmt.Sprintf("%d hung, %d given back, %d collected",
					strings.Count(ran, "DEL stuck"), strings.Count(ran, "DEL works"), strings.Count(ran, "GC works")))
			})
		})
	}
}

// Whoever owns a sandbox, a caller that is certain collects it; what has a namespace, or is
// being worked on, stays.
func TestI5_Collect(t *testing.T) {
	for _, origin := range []attach.Origin{attach.Ours, attach.FromV4, attach.Cache} {
		t.Run("origin "+string(origin), func(t *testing.T) {
			r := newRig(t)
			want := strings.Replace(r.host.String(), "netns "+pod1.NetNS+"\n", "", 1)
			rec := r.mustAdd(pod1, planOf(pod1, netA()))
			rec.Origin = origin
			r.host.PutRecord(rec)
			if origin == attach.Cache {
				r.host.DropRecord("pod-1")
			}
			r.host.Transcript()
			collect := func(wantTried bool, wantErr string) {
				t.Helper()
				tried, err := r.Collect(t.Context(), rec)
				text := ""
				if err != nil {
					text = err.Error()
				}
				same(t, fmt.Sprint(wantTried, wantErr), fmt.Sprint(tried, text))
			}
			collect(false, "") // it has its namespace
			r.host.RemoveNetNS(pod1.NetNS)
			lock, err := r.Ledger.Lock(t.Context(), "pod-1")
			if err != nil {
				t.Fatal(err)
			}
			collect(false, "") // somebody works on it
			lock.Release()
			r.delegates()
			r.host.On("DEL net-a", fakehost.Fail(storeDown))
			collect(true, "pod ns/pod-1: network ns/net-a (interface net1): DEL: address store down")
			r.host.On("DEL net-a", nil)
			collect(true, "")
			if origin != attach.Cache { // the caller has read it
				collect(false, "")
			}
			r.delegates("DEL net-a pod-1/net1", "DEL net-a pod-1/net1")
			r.state(want)
		})
	}
}

// A result is the sandbox's own business where that has a file, and goes with an attachment
// that is gone already.
func TestI5_CollectAResult(t *testing.T) {
	r := newRig(t)
	want := strings.Replace(r.host.String(), "netns "+pod1.NetNS+"\n", "", 1)
	rec := r.mustAdd(pod1, planOf(pod1, network("net-a", "net1", "")))
	r.host.RemoveNetNS(pod1.NetNS)
	rec.Origin = attach.Cache
	if tried, err := r.Collect(t.Context(), rec); tried || err != nil {
		t.Errorf("tried %v, %v", tried, err)
	}
	r.host.DropRecord("pod-1")
	r.host.On("DEL net-a", fakehost.Fail(types.NewError(types.ErrInternal, "link net1 not found", "")))
	if tried, err := r.Collect(t.Context(), rec); !tried || err != nil {
		t.Errorf("tried %v, %v", tried, err)
	}
	r.state(want)
}

// What the runtime names is not touched, though its namespace is gone.
func TestR15GCOfAResultThatIsNamed(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary()))
	r.host.DropRecord("pod-1")
	r.host.RemoveNetNS(pod1.NetNS)
	got, err := r.gc(valid("pod-0", "pod-1"))
	if err != nil {
		t.Error(err)
	}
	same(t, lines("GC primary [pod-0/eth0 pod-1/eth0]"), got)
}

// Of what the daemon has named those that are gone or alive are not tried.
func TestR16CollectNamed(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, netA()))
	r.host.RemoveNetNS(pod1.NetNS)
	r.mustAdd(pod2, planOf(pod2, netA()))
	r.host.Transcript()
	got := map[string]bool{}
	for _, name := range []string{"pod-x", "pod-2", "pod-1"} {
		tried, err := r.CollectNamed(t.Context(), name)
		if err != nil {
			t.Error(err)
		}
		got[name] = tried
	}
	same(t, map[string]bool{"pod-x": false, "pod-2": false, "pod-1": true}, got)
	r.delegates("DEL net-a pod-1/net1")
}

// A device that Multus v4 gave to a pod long gone may be another pod's by now.
func TestR15GCLeavesForeignDevices(t *testing.T) {
	for _, origin := range []attach.Origin{attach.FromV4, attach.Cache} {
		r := newRig(t)
		rec := r.mustAdd(pod1, planOf(pod1, primary(), network("net-a", "net1", `,"subnets":["10.1.0.0/24"],"deviceID":"0000:03:02.1"`)))
		rec.Origin = origin
		r.host.PutRecord(rec)
		if origin == attach.Cache {
			r.host.DropRecord("pod-1")
		}
		r.host.RemoveNetNS(pod1.NetNS)
		r.host.Transcript()
		got, err := r.gc(valid("pod-2"))
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(got, "DEL net-a") {
			t.Errorf("%v: %s", origin, got)
		}
	}
}
