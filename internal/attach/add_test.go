package attach_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var storeDown = types.NewError(117, "address store down", "")

func TestR2AddOrder(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	same(t, lines(
		"lock pod-1", "load pod-1", "interfaces", "save intent durable",
		"ADD primary pod-1/eth0", "ADD net-a pod-1/net1", "ADD net-b pod-1/net2",
		"facts", "facts", "facts", // the default routes that they lose
		"routes -[eth0/v4 net1/v4 net2/v4] +[net1/v4/10.1.0.1]",
		"facts", "facts", "facts", "save attached",
	), r.host.Transcript())
	r.state(lines(
		"netns /run/netns/pod-0",
		"  eth0 02:00:0a:00:00:02 [10.0.0.2/24 fd00::2/64]",
		"  net1 02:00:0a:01:00:02 [10.1.0.2/24]",
		"  net2 02:00:0a:02:00:02 [10.2.0.2/24]",
		"  default via fd00::1 dev eth0",
		"  default via 10.1.0.1 dev net1",
		"netns /run/netns/pod-1",
		"  eth0 02:00:0a:00:00:03 [10.0.0.3/24 fd00::3/64]",
		"  net1 02:00:0a:01:00:03 [10.1.0.3/24]",
		"  net2 02:00:0a:02:00:03 [10.2.0.3/24]",
		"  default via fd00::1 dev eth0",
		"  default via 10.1.0.1 dev net1",
		"netns /run/netns/pod-2",
		"lease net-a 10.1.0.2 pod-0/net1",
		"lease net-a 10.1.0.3 pod-1/net1",
		"lease net-b 10.2.0.2 pod-0/net2",
		"lease net-b 10.2.0.3 pod-1/net2",
		"lease primary 10.0.0.2 pod-0/eth0",
		"lease primary 10.0.0.3 pod-1/eth0",
		"lease primary fd00::2 pod-0/eth0",
		"lease primary fd00::3 pod-1/eth0",
		"cache pod-0/eth0 primary", "cache pod-0/net1 net-a", "cache pod-0/net2 net-b",
		"cache pod-1/eth0 primary", "cache pod-1/net1 net-a", "cache pod-1/net2 net-b",
		"record pod-0 attached primary/eth0 net-a/net1 net-b/net2",
		"record pod-1 attached primary/eth0 net-a/net1 net-b/net2",
	))
}

// TestR1AddReturnsTheRecord: in a bubble no time passes, so that Millis has one value.
func TestR1AddReturnsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		got := r.mustAdd(pod1, planOf(pod1, primary(), netA()))
		want := attach.Record{
			State: attach.Attached, Created: birth, Sandbox: pod1, Plan: *planOf(pod1, primary(), netA()),
			Outcomes: []attach.Outcome{
				{Result: []byte(`{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:0a:00:00:03","name":"eth0","sandbox":"/run/netns/pod-1"}],` +
					`"ips":[{"address":"10.0.0.3/24","gateway":"10.0.0.1","interface":0},{"address":"fd00::3/64","gateway":"fd00::1","interface":0}],` +
					`"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"::0/0","gw":"fd00::1"}]}`)},
				{Result: []byte(`{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:0a:01:00:03","name":"net1","sandbox":"/run/netns/pod-1"}],` +
					`"ips":[{"address":"10.1.0.3/24","gateway":"10.1.0.1","interface":0}]}`)},
			},
		}
		same(t, want, got, compact)
		stored, err := r.host.Record("pod-1")
		if err != nil {
			t.Fatal(err)
		}
		same(t, want, stored, compact)
	})
}

func TestT18RollbackInReverse(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.host.On("ADD net-b", fakehost.Fail(storeDown))
	for range 50 {
		_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
		fails(t, err, 117, "pod ns/pod-1: network ns/net-b (interface net2): ADD: address store down")
		r.delegates(
			"ADD primary pod-1/eth0", "ADD net-a pod-1/net1", "ADD net-b pod-1/net2",
			"DEL net-b pod-1/net2", "DEL net-a pod-1/net1", "DEL primary pod-1/eth0",
		)
		r.state(before)
	}
}

// What cannot be undone now is left to DEL, and nothing else is.
func TestT18RollbackFails(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.host.On("ADD net-b", fakehost.Fail(storeDown))
	r.host.On("DEL net-a", fakehost.Once(fakehost.Fail(storeDown)))
	_, err := r.Add(t.Context(), pod1, planOf(pod1, primary(), netA(), netB(), network("net-c", "net3", "")))
	fails(t, err, 117, "pod ns/pod-1: network ns/net-b (interface net2): ADD: address store down")
	rec, err := r.host.Record("pod-1")
	if err != nil {
		t.Fatal(err)
	}
	detached := [4]bool{}
	for i, out := range rec.Outcomes {
		detached[i] = out.Detached
	}
	same(t, [4]bool{true, false, true, true}, detached)
	r.host.Transcript()
	r.mustDel(pod1)
	r.delegates("DEL net-a pod-1/net1")
	r.state(before)
}

func TestR1NothingRunsWhenANameIsTaken(t *testing.T) {
	r := newRig(t)
	r.host.SetLink(pod1.NetNS, "net1", &attach.Facts{MAC: "02:00:00:00:00:01"})
	r.host.SetLink(pod1.NetNS, "net2", &attach.Facts{MAC: "02:00:00:00:00:02"})
	before := r.host.String()
	_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
	fails(t, err, types.ErrInternal, "pod ns/pod-1: network ns/net-a (interface net1): ADD: the pod's network namespace already has an interface of this name\n"+
		"pod ns/pod-1: network ns/net-b (interface net2): ADD: the pod's network namespace already has an interface of this name")
	same(t, lines("lock pod-1", "load pod-1", "interfaces"), r.host.Transcript())
	r.state(before)
}

func TestR1AddWithoutNamespace(t *testing.T) {
	r := newRig(t)
	_, err := r.Add(t.Context(), attach.Sandbox{ContainerID: "pod-9", NetNS: "/run/netns/pod-9"}, planOf(pod1, primary()))
	fails(t, err, types.ErrInvalidNetNS, `pod ns/pod-1: "/run/netns/pod-9": no such network namespace`)
	r.host.On("interfaces", fakehost.Fail(errors.New("netlink: no buffer space available")))
	_, err = r.Add(t.Context(), pod1, planOf(pod1, primary()))
	fails(t, err, types.ErrInternal, "pod ns/pod-1: netlink: no buffer space available")
}

func TestR1AddWithoutAttachments(t *testing.T) {
	r := newRig(t)
	_, err := r.Add(t.Context(), pod1, planOf(pod1))
	fails(t, err, types.ErrInternal, "pod ns/pod-1: the plan has no attachments, not even the primary network")
}

// What keeps any network from starting is found for all of them before anything runs.
func TestI2_AllThatCannotStartAtOnce(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	missing := types.NewError(types.ErrInvalidNetworkConfig, "no such plugin", "")
	r.host.On("ready net-a", fakehost.Fail(missing))
	r.host.On("ready net-b", fakehost.Fail(missing))
	_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
	fails(t, err, types.ErrInvalidNetworkConfig, "pod ns/pod-1: network ns/net-a (interface net1): ADD: no such plugin\npod ns/pod-1: network ns/net-b (interface net2): ADD: no such plugin")
	r.delegates()
	r.state(before)
}

// The ledger fails at each of its steps in an ADD: all or nothing, and no delegate
// without a recorded intent.
func TestR4LedgerFails(t *testing.T) {
	full := errors.New("no space left on device")
	undone := []string{
		"ADD primary pod-1/eth0", "ADD net-a pod-1/net1", "ADD net-b pod-1/net2",
		"DEL net-b pod-1/net2", "DEL net-a pod-1/net1", "DEL primary pod-1/eth0",
	}
	for _, c := range []struct {
		step, want string
		delegates  []string
	}{
		{"lock", "pod ns/pod-1: the sandbox cannot be locked: no space left on device", nil},
		{"load", "pod ns/pod-1: no space left on device", nil},
		{"save intent", "pod ns/pod-1: nothing was attached, because the intent cannot be recorded: no space left on device", nil},
		{"save attached", "pod ns/pod-1: the outcome cannot be recorded: no space left on device", undone},
	} {
		t.Run(c.step, func(t *testing.T) {
			r := newRig(t)
			if c.step == "load" { // only what is there is read
				r.host.PutRecord(attach.Record{State: attach.Intent, Sandbox: pod1, Plan: *planOf(pod1, primary())})
			}
			before := r.host.String()
			r.host.On(c.step, fakehost.Fail(full))
			_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
			fails(t, err, types.ErrInternal, c.want)
			r.delegates(c.delegates...)
			r.host.On(c.step, nil)
			r.state(before)
		})
	}
}

// An ADD of a sandbox that is recorded, by us or by v4, undoes that first.
func TestT2AddAgain(t *testing.T) {
	for _, origin := range []attach.Origin{attach.Ours, attach.FromV4} {
		t.Run("origin "+string(origin), func(t *testing.T) {
			r := newRig(t)
			rec := r.mustAdd(pod1, planOf(pod1, primary(), netA()))
			before := r.host.String()
			rec.Origin, rec.Plan.Attachments[0].Interface = origin, ""
			r.host.PutRecord(rec)
			r.host.Transcript()
			r.mustAdd(pod1, planOf(pod1, primary(), netA()))
			r.delegates("DEL net-a pod-1/net1", "DEL primary pod-1/eth0", "ADD primary pod-1/eth0", "ADD net-a pod-1/net1")
			r.state(before)
		})
	}
}

func TestT2AddAgainCannotUndo(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.On("DEL net-a", fakehost.Fail(storeDown))
	_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
	fails(t, err, types.ErrTryAgainLater, "pod ns/pod-1: an earlier ADD of this sandbox cannot be undone: "+
		"pod ns/pod-1: network ns/net-a (interface net1): DEL: address store down")
}

// The caller goes away in the middle: nothing more is started, and the undo runs.
func TestR12CallerLeaves(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	ctx, leave := context.WithCancel(t.Context())
	r.host.On("ADD net-a", func(ctx context.Context) error { leave(); return nil })
	_, err := r.Add(ctx, pod1, threeNetworks(pod1))
	fails(t, err, types.ErrInternal, "pod ns/pod-1: network ns/net-b (interface net2): ADD: not started: context canceled")
	r.delegates("ADD primary pod-1/eth0", "ADD net-a pod-1/net1", "DEL net-a pod-1/net1", "DEL primary pod-1/eth0")
	r.state(before)
}

// The undo has a time of its own.
func TestR12UndoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.UndoTimeout = 7 * time.Second
		r.host.On("ADD net-b", fakehost.Fail(storeDown))
		r.host.On("DEL net-a", fakehost.Wait(nil))
		begin := time.Now()
		_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
		fails(t, err, 117, "pod ns/pod-1: network ns/net-b (interface net2): ADD: address store down")
		same(t, 7*time.Second, time.Since(begin))
		rec, err := r.host.Record("pod-1")
		same(t, fmt.Sprint(attach.Detaching, nil), fmt.Sprint(rec.State, err))
	})
}

// Default networks, the auxiliary chain and the plan's environment reach the runner.
func TestR19DelegatesGetThePlan(t *testing.T) {
	r := newRig(t)
	p := planOf(pod1, primary(), netA())
	p.Env = []string{"HTTP_PROXY=http://proxy"}
	p.Attachments[1].Args = append(p.Attachments[1].Args, plan.Arg{"K8S_POD_NAME", "pod-1"})
	n := len(r.host.Calls())
	r.mustAdd(pod1, p)
	for i, c := range r.host.Calls()[n:] {
		same(t, attach.Attachment{Attachment: p.Attachments[i], Sandbox: pod1, Env: p.Env}, without(c.Attachment), compact)
	}
}

func without(a attach.Attachment) attach.Attachment {
	a.Lock = nil
	return a
}
