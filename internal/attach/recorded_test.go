package attach_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

func (r *rig) plugRecorded(a plan.Attachment) attach.Record {
	r.t.Helper()
	rec, err := r.PlugRecorded(r.t.Context(), "pod-1", thePod, a)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

func (r *rig) unplugRecorded(a plan.Attachment) attach.Record {
	r.t.Helper()
	rec, err := r.UnplugRecorded(r.t.Context(), "pod-1", thePod, a)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// recordedIn are the networks of a record.
func recordedIn(rec attach.Record) (names []string) {
	for _, a := range rec.Plan.Attachments {
		names = append(names, a.Config.Name()+"/"+a.Interface)
	}
	return names
}

// A sandbox without a record was deleted meanwhile: nothing is attached to it, and
// everything is detached.
func TestI5_OnlyRecordedSandboxes(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.host.Transcript()
	_, err := r.PlugRecorded(t.Context(), "pod-1", thePod, netD())
	if !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("got %v", err)
	}
	same(t, attach.Record{}, r.unplugRecorded(netD()), compact)
	r.delegates()
	r.state(before)
}

// The record that comes back is what is true; what is plugged twice or unplugged twice
// runs once.
func TestI5_PlugAndUnplugRecorded(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary(), netA()))
	before := r.host.String()
	r.host.Transcript()
	for range 2 {
		same(t, []string{"primary/eth0", "net-a/net1", "net-d/net5"}, recordedIn(r.plugRecorded(netD())))
	}
	for range 2 {
		same(t, []string{"primary/eth0", "net-a/net1"}, recordedIn(r.unplugRecorded(netD())))
	}
	r.delegates("ADD net-d pod-1/net5", "DEL net-d pod-1/net5")
	r.state(before)
	r.host.On("ADD net-d", fakehost.Fail(storeDown))
	rec, err := r.PlugRecorded(t.Context(), "pod-1", thePod, netD())
	fails(t, err, 117, "pod ns/pod-1: network ns/net-d (interface net5): ADD: address store down")
	same(t, []string{"primary/eth0", "net-a/net1"}, recordedIn(rec))
	r.state(before)
}

// A network that takes over the default route gives it back when it goes, to those that
// had it; so does one that had it from the start.
func TestT21HotPluggedDefaultRoute(t *testing.T) {
	holder := netD()
	holder.Routes.Gateways = []netip.Addr{netip.MustParseAddr("10.5.0.1")}
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary(), netA()))
	before := r.host.String()
	routed := r.plugRecorded(holder)
	if state := r.host.String(); !strings.Contains(state, "  default via fd00::1 dev eth0\n  default via 10.5.0.1 dev net5\n") {
		t.Errorf("plugged:\n%s", state)
	}
	same(t, []string{`{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:0a:00:00:03","name":"eth0","sandbox":"/run/netns/pod-1"}],` +
		`"ips":[{"address":"10.0.0.3/24","gateway":"10.0.0.1","interface":0},{"address":"fd00::3/64","gateway":"fd00::1","interface":0}],` +
		`"routes":[{"dst":"::0/0","gw":"fd00::1"}]}`}, []string{string(routed.Outcomes[0].Routed)})
	back := r.unplugRecorded(holder)
	same(t, sorted(before), sorted(r.host.String()))
	same(t, "", string(back.Outcomes[0].Routed))

	if _, err := r.Del(t.Context(), pod1, "eth0"); err != nil {
		t.Fatal(err)
	}
	plain := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1)) // net1 has the default route
	r.unplugRecorded(netA())
	if state := r.host.String(); !strings.Contains(state, "  net2 02:00:0a:02:00:03 [10.2.0.3/24]\n  default via fd00::1 dev eth0\n  default via 10.0.0.1 dev eth0\n") {
		t.Errorf("unplugged:\n%s", state)
	}
	r.mustDel(pod1)
	r.state(plain)
}

// Of several default routes the first network's comes back last: it takes the place of
// the others', as it had it.
func TestT21FirstDefaultRouteComesBackLast(t *testing.T) {
	holder := netD()
	holder.Routes.Gateways = []netip.Addr{netip.MustParseAddr("10.5.0.1")}
	r := newRig(t)
	a := network("net-a", "net1", `,"subnets":["10.1.0.0/24"],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1"}]`)
	r.mustAdd(pod1, planOf(pod1, primary(), a))
	r.plugRecorded(holder)
	r.host.Transcript()
	r.unplugRecorded(holder)
	if got, want := r.host.Transcript(), "routes -[] +[net1/v4/10.1.0.1 eth0/v4/10.0.0.1]\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s", got)
	}
}

// What goes wrong with routes is undone, and tried again.
func TestT21HotPluggedDefaultRouteFails(t *testing.T) {
	holder := netD()
	holder.Routes.Gateways = []netip.Addr{netip.MustParseAddr("10.5.0.1")}
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary(), netA()))
	before := r.host.String()
	r.host.On("routes", fakehost.Once(fakehost.Fail(errors.New("busy"))))
	_, err := r.PlugRecorded(t.Context(), "pod-1", thePod, holder)
	fails(t, err, types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net5): ADD: default routes: busy")
	r.state(before)
	r.plugRecorded(holder)
	r.host.On("routes", fakehost.Once(fakehost.Fail(errors.New("busy"))))
	_, err = r.UnplugRecorded(t.Context(), "pod-1", thePod, holder)
	fails(t, err, types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net5): DEL: default routes: busy")
	r.unplugRecorded(holder)
	same(t, sorted(before), sorted(r.host.String()))
}

// sorted is a host's state where the order of routes does not count.
func sorted(state string) []string {
	return slices.Sorted(strings.Lines(state))
}

// A plugin that refuses the network refuses to clean up too: another configuration can
// be tried all the same.
func TestI5_RefusedNetworkIsForgotten(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary()))
	refusal := answer{"fake", types.NewError(types.ErrInvalidNetworkConfig, "no such mode", "")}
	r.host.On("ADD net-d", fakehost.Once(fakehost.Fail(refusal)))
	r.host.On("DEL net-d", fakehost.Once(fakehost.Fail(refusal)))
	rec, err := r.PlugRecorded(t.Context(), "pod-1", thePod, netD())
	fails(t, err, types.ErrInvalidNetworkConfig, "pod ns/pod-1: network ns/net-d (interface net5): ADD: no such mode")
	same(t, []string{"primary/eth0"}, recordedIn(rec))
	same(t, []string{"primary/eth0", "net-e/net5"}, recordedIn(r.plugRecorded(network("net-e", "net5", ""))))
}

func optional(a plan.Attachment) plan.Attachment {
	a.Optional = true
	return a
}

func failing(err error) func() fakehost.Script {
	return func() fakehost.Script { return fakehost.Fail(err) }
}

// An optional network that fails is left out, wherever it stands and whatever goes
// wrong; one that cannot be undone stays for DEL, and CHECK does not mind.
func TestI5_OptionalNetworkIsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		step   string
		script func() fakehost.Script
		want   []string
	}{
		"its plugin is not there": {"ready net-a", failing(errors.New("no plugin")), []string{"primary/eth0", "net-b/net2"}},
		"its ADD fails":           {"ADD net-a", failing(storeDown), []string{"primary/eth0", "net-b/net2"}},
		"its undo fails":          {"DEL net-a", func() fakehost.Script { return fakehost.Once(fakehost.Fail(errors.New("busy"))) }, []string{"primary/eth0", "net-a/net1", "net-b/net2"}},
	} {
		for _, parallel := range []int{1, 8} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				r.Parallelism = parallel
				before := r.host.String()
				r.host.On("ADD net-a", fakehost.Fail(storeDown))
				r.host.On(c.step, c.script())
				p := threeNetworks(pod1)
				p.Attachments[1] = optional(p.Attachments[1])
				rec := r.mustAdd(pod1, p)
				same(t, c.want, recordedIn(rec))
				if state := r.host.String(); !strings.Contains(state, "net2 02:00:0a:02:00:03 [10.2.0.3/24]\n  default via 10.0.0.1 dev eth0\n") {
					t.Errorf("the default route went to a network that is not there:\n%s", state)
				}
				if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
					t.Errorf("CHECK: %v", err)
				}
				r.mustDel(pod1)
				r.state(before)
			})
		}
	}
}

// One that hangs has half of the time; the pod gets the rest.
func TestI5_OptionalNetworkHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.On("ADD net-a", fakehost.Slow(time.Hour))
		r.host.On("ADD net-b", fakehost.Slow(31*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if rec, err := r.Add(ctx, pod1, planOf(pod1, primary(), optional(netA()), netB())); err == nil {
			t.Errorf("30 s were left, not more: %v", recordedIn(rec))
		}
		r.host.On("ADD net-b", fakehost.Slow(20*time.Second))
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		rec, err := r.Add(ctx, pod1, planOf(pod1, primary(), optional(netA()), netB()))
		if err != nil {
			t.Fatal(err)
		}
		same(t, 50*time.Second, time.Since(began))
		same(t, []string{"primary/eth0", "net-b/net2"}, recordedIn(rec))
	})
}
