package attach_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var thePod = planOf(pod1).Pod

func netD() plan.Attachment { return network("net-d", "net5", `,"subnets":["10.5.0.0/24"]`) }

func (r *rig) mustPlug(a plan.Attachment) string {
	r.t.Helper()
	result, err := r.Plug(r.t.Context(), pod1, thePod, a)
	if err != nil {
		r.t.Fatalf("Plug: %v", err)
	}
	return string(result)
}

func TestC1_18PlugThenDel(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.Transcript()
	result := r.mustPlug(netD())
	same(t, `{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:0a:05:00:02","name":"net5","sandbox":"/run/netns/pod-1"}],`+
		`"ips":[{"address":"10.5.0.2/24","gateway":"10.5.0.1","interface":0}]}`, result)
	same(t, lines("lock pod-1", "load pod-1", "interfaces", "save attached durable", "ADD net-d pod-1/net5", "facts", "facts", "facts",
		"routes -[eth0/v4 net1/v4 net2/v4 net5/v4] +[net1/v4/10.1.0.1]", "facts", "save attached"), r.host.Transcript())
	same(t, result, r.mustPlug(netD())) // nothing runs twice
	same(t, lines("lock pod-1", "load pod-1"), r.host.Transcript())
	if err := r.CheckOne(t.Context(), pod1, netD()); err != nil {
		t.Errorf("CheckOne: %v", err)
	}
	r.mustDel(pod1)
	r.delegates(append([]string{"DEL net-d pod-1/net5"}, delThree...)...)
	r.state(before)
}

func TestC1_18PlugThenUnplug(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	before := r.host.String()
	r.mustPlug(netD())
	r.host.Transcript()
	r.host.On("DEL net-d", fakehost.Once(fakehost.Fail(storeDown)))
	fails(t, r.Unplug(t.Context(), pod1, thePod, netD()), 117, "pod ns/pod-1: network ns/net-d (interface net5): DEL: address store down")
	changed := netD()
	changed.Config = network("net-d", "net5", `,"changed":true`).Config // the NAD was edited since
	if err := r.Unplug(t.Context(), pod1, thePod, changed); err != nil {
		t.Errorf("Unplug: %v", err)
	}
	r.delegates("DEL net-d pod-1/net5", "DEL net-d pod-1/net5")
	calls := r.host.Calls()
	same(t, string(netD().Config.Bytes()), string(calls[len(calls)-1].Config.Bytes()))
	r.state(before)
}

// One of the networks of the ADD can be taken and given back.
func TestC1_18UnplugOfAnOriginal(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, planOf(pod1, primary(), netA(), netB()))
	whole := r.host.String()
	if err := r.Unplug(t.Context(), pod1, thePod, netB()); err != nil {
		t.Errorf("Unplug: %v", err)
	}
	r.mustPlug(netB())
	r.state(whole)
	r.mustDel(pod1)
	r.state(before)
}

func TestC1_18UnplugOfTheUnknown(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	before := r.host.String()
	r.host.Transcript()
	for range 2 {
		if err := r.Unplug(t.Context(), pod1, thePod, netD()); err != nil {
			t.Errorf("Unplug: %v", err)
		}
	}
	r.delegates("DEL net-d pod-1/net5", "DEL net-d pod-1/net5")
	r.host.On("DEL net-d", fakehost.Fail(storeDown))
	fails(t, r.Unplug(t.Context(), pod1, thePod, netD()), 117, "pod ns/pod-1: network ns/net-d (interface net5): DEL: address store down")
	r.host.On("DEL net-d", fakehost.Fail(types.NewError(types.ErrInternal, "Link not found", "")))
	if err := r.Unplug(t.Context(), pod1, thePod, netD()); err != nil {
		t.Errorf("Unplug: %v", err)
	}
	r.state(before)
}

// Another network under an interface that is taken: for no verb anything runs.
func TestC1_18OtherNetworkUnderTheInterface(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	before := r.host.String()
	r.host.Transcript()
	other := network("net-d", "net1", `,"subnets":["10.5.0.0/24"]`)
	_, err := r.Plug(t.Context(), pod1, thePod, other)
	fails(t, err, types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net1): ADD: the interface belongs to the network ns/net-a")
	fails(t, r.Unplug(t.Context(), pod1, thePod, other), types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net1): DEL: the interface belongs to the network ns/net-a")
	fails(t, r.CheckOne(t.Context(), pod1, other), types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net1): CHECK: the interface belongs to the network ns/net-a")
	r.delegates()
	r.state(before)
}

func TestC1_18PlugIsUndone(t *testing.T) {
	const pre = "pod ns/pod-1: network ns/net-d (interface net5): ADD: "
	for _, c := range []struct {
		name, step string
		err        error
		code       uint
		want       string
	}{
		{"delegate fails", "ADD net-d", storeDown, 117, pre + "address store down"},
		{"outcome not recorded", "save attached", nil, 999, pre + "no space left on device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, first := range []bool{false, true} { // with and without a record before
				r := newRig(t)
				if !first {
					r.mustAdd(pod1, threeNetworks(pod1))
				}
				before := r.host.String()
				r.host.Transcript()
				if c.err != nil {
					r.host.On(c.step, fakehost.Fail(c.err))
				} else {
					// The first save is the intent, the second fails, the third is the undo's.
					n := 0
					r.Ledger = &failingSave{r.host.Process(), func() error {
						if n++; n == 2 {
							return errors.New("no space left on device")
						}
						return nil
					}}
				}
				_, err := r.Plug(t.Context(), pod1, thePod, netD())
				fails(t, err, c.code, c.want)
				r.delegates("ADD net-d pod-1/net5", "DEL net-d pod-1/net5")
				r.state(before)
			}
		})
	}
}

type failingSave struct {
	*fakehost.Process
	next func() error
}

func (f *failingSave) Save(rec attach.Record, durable bool) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Process.Save(rec, durable)
}

// What cannot be undone stays recorded, and the next Plug or DEL undoes it.
func TestC1_18PlugCannotBeUndone(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary()))
	r.host.Transcript()
	r.host.On("ADD net-d", fakehost.Once(fakehost.Fail(storeDown)))
	r.host.On("DEL net-d", fakehost.Fail(errors.New("busy")))
	_, err := r.Plug(t.Context(), pod1, thePod, netD())
	fails(t, err, 117, "pod ns/pod-1: network ns/net-d (interface net5): ADD: address store down\n"+
		"pod ns/pod-1: network ns/net-d (interface net5): DEL: busy")
	_, err = r.Plug(t.Context(), pod1, thePod, netD())
	fails(t, err, types.ErrTryAgainLater, "pod ns/pod-1: an earlier, unfinished ADD cannot be undone: pod ns/pod-1: network ns/net-d (interface net5): DEL: busy")
	fails(t, r.CheckOne(t.Context(), pod1, netD()), types.ErrUnknownContainer, "pod ns/pod-1: network ns/net-d (interface net5): CHECK: its ADD did not finish")
	r.host.On("DEL net-d", nil)
	r.mustPlug(netD())
	r.delegates("ADD net-d pod-1/net5", "DEL net-d pod-1/net5", "DEL net-d pod-1/net5", "DEL net-d pod-1/net5", "ADD net-d pod-1/net5")
}

func TestC1_18PlugRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*rig)
		code  uint
		want  string
	}{
		{
			"interface in the namespace", func(r *rig) { r.host.SetLink(pod1.NetNS, "net5", &attach.Facts{}) }, 999,
			"pod ns/pod-1: network ns/net-d (interface net5): ADD: the pod's network namespace already has an interface of this name",
		},
		{"namespace gone", func(r *rig) { r.host.RemoveNetNS(pod1.NetNS) }, types.ErrInvalidNetNS, `pod ns/pod-1: "/run/netns/pod-1": no such network namespace`},
		{"damaged record of a living pod", func(r *rig) { r.host.Damage("pod-1") }, 999, "pod ns/pod-1: the record of the sandbox is damaged"},
		{
			"ADD has not finished", func(r *rig) { r.change(func(rec *attach.Record) { rec.State = attach.Intent }) }, types.ErrTryAgainLater,
			"pod ns/pod-1: the sandbox is not attached: its ADD or its DEL has not finished",
		},
		{"v4 attached it", func(r *rig) {
			r.change(func(rec *attach.Record) {
				rec.Origin, rec.Outcomes = attach.FromV4, nil
				rec.Plan.Attachments = append(rec.Plan.Attachments, netD())
			})
		}, 999, "pod ns/pod-1: network ns/net-d (interface net5): ADD: Multus v4 attached it and left no result"},
		{
			"intent not recorded", func(r *rig) { r.host.On("save attached", fakehost.Fail(errors.New("no space left on device"))) }, 999,
			"pod ns/pod-1: nothing was attached, because the intent cannot be recorded: no space left on device",
		},
		{
			"no locks", func(r *rig) { r.host.On("lock", fakehost.Fail(errors.New("operation not supported"))) }, 999,
			"pod ns/pod-1: the sandbox cannot be locked: operation not supported",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.mustAdd(pod1, planOf(pod1, primary()))
			c.setup(r)
			before := r.host.String()
			r.host.Transcript()
			_, err := r.Plug(t.Context(), pod1, thePod, netD())
			fails(t, err, c.code, c.want)
			r.delegates()
			r.state(before)
		})
	}
}

// change edits the record of pod-1.
func (r *rig) change(edit func(*attach.Record)) {
	rec, err := r.host.Record("pod-1")
	if err != nil {
		r.t.Fatal(err)
	}
	edit(&rec)
	r.host.PutRecord(rec)
}

// A record of v4 becomes one of ours, and the whole pod can be deleted by it.
func TestR9PlugIntoV4sPod(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, planOf(pod1, primary(), netA()))
	r.change(func(rec *attach.Record) {
		rec.Origin, rec.Outcomes, rec.Plan.Attachments[0].Interface, rec.Sandbox.NetNS = attach.FromV4, nil, "", ""
	})
	r.mustPlug(netD())
	r.host.Transcript()
	r.mustDel(pod1)
	r.delegates("DEL net-d pod-1/net5", "DEL net-a pod-1/net1", "DEL primary pod-1/eth0")
	r.state(before)
}

// A pod from before Multus: only what was plugged is recorded.
func TestC1_18PlugWithoutRecord(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	fails(t, r.CheckOne(t.Context(), pod1, netD()), types.ErrInternal, attach.ErrNoRecord.Error())
	r.mustPlug(netD())
	if want := "record pod-1 attached net-d/net5\n"; !strings.Contains(r.host.String(), want) {
		t.Errorf("the host:\n%s", r.host)
	}
	fails(t, r.CheckOne(t.Context(), pod1, netA()), types.ErrInternal, "pod ns/pod-1: network ns/net-a (interface net1): CHECK: no record of the sandbox")
	r.host.SetLink(pod1.NetNS, "net5", nil)
	fails(t, r.CheckOne(t.Context(), pod1, netD()), types.ErrInternal, "pod ns/pod-1: network ns/net-d (interface net5): CHECK: the interface net5 is gone")
	if err := r.Unplug(t.Context(), pod1, thePod, netD()); err != nil {
		t.Errorf("Unplug: %v", err)
	}
	r.state(before)
}

// Two plugs of the same network at once: it is attached once.
func TestC1_18PlugTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mustAdd(pod1, threeNetworks(pod1))
		r.host.Transcript()
		r.host.On("ADD net-d", fakehost.Slow(time.Second))
		results := make(chan string)
		for range 2 {
			go func() { results <- r.mustPlug(netD()) }()
		}
		same(t, <-results, <-results)
		r.delegates("ADD net-d pod-1/net5")
	})
}
