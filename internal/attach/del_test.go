package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var delThree = []string{"DEL net-b pod-1/net2", "DEL net-a pod-1/net1", "DEL primary pod-1/eth0"}

// DEL hands each delegate what ADD had, with its own result as prevResult, whatever
// became of the network since.
func TestT13DelGetsWhatAddHad(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	p := threeNetworks(pod1)
	p.Env = []string{"HTTP_PROXY=http://proxy"}
	p.Attachments[1] = network("net-a", "net1", `,"subnets":["10.1.0.0/24"],"big":12345678901234567890,"ipam":{"a":1,"b":[{"c":null}]},"<x>":"y"`)
	p.Attachments[1].Args = []plan.Arg{{"IgnoreUnknown", "true"}, {"X", "a=b"}}
	p.Attachments[1].CapabilityArgs = map[string]json.RawMessage{"mac": []byte(`"02:00:00:00:00:09"`), "n": []byte(`9007199254740993`)}
	n := len(r.host.Calls())
	rec := r.mustAdd(pod1, p)
	r.mustDel(pod1)
	calls := r.host.Calls()[n:]
	for i, add := range calls[:3] {
		del := calls[5-i]
		same(t, "ADD DEL", add.Verb+" "+del.Verb)
		same(t, without(add.Attachment), without(del.Attachment), compact)
		same(t, string(rec.Outcomes[i].Result), string(del.Prev))
	}
	r.state(before)
}

func TestT16NamespaceGone(t *testing.T) {
	for _, path := range []string{"", pod1.NetNS, "/var" + pod1.NetNS} {
		t.Run("path "+path, func(t *testing.T) {
			r := newRig(t)
			before := r.host.String()
			r.mustAdd(pod1, threeNetworks(pod1))
			r.host.RemoveNetNS(pod1.NetNS)
			r.host.Transcript()
			r.mustDel(attach.Sandbox{ContainerID: "pod-1", NetNS: path})
			r.delegates(delThree...)
			for _, c := range r.host.Calls()[6:] {
				same(t, path, c.Sandbox.NetNS)
			}
			r.state(strings.Replace(before, "netns "+pod1.NetNS+"\n", "", 1))
		})
	}
}

// gone is how cnirun reports several plugins.
func gone(all ...error) error { return fmt.Errorf("plugin: %w", errors.Join(all...)) }

func TestT17OneDelFails(t *testing.T) {
	notFound := types.NewError(types.ErrInternal, "Link not found", "")
	for _, c := range []struct {
		name string
		err  error
		want string // empty for success
	}{
		{"real", storeDown, "address store down"},
		{"link not found", notFound, ""},
		{"unknown container", types.NewError(types.ErrUnknownContainer, "who?", ""), ""},
		{"all plugins find nothing", gone(notFound, fmt.Errorf("portmap: %w", notFound)), ""},
		{"one plugin finds nothing, the other fails", gone(notFound, storeDown), "plugin: Link not found\naddress store down"},
		{"a plugin that is not installed", gone(notFound, errors.New("executable file not found in /opt/cni/bin")), "plugin: Link not found\nexecutable file not found in /opt/cni/bin"},
		{"words on stderr", types.NewError(types.ErrInternal, "exit status 127", "sh: jq: not found"), "exit status 127; sh: jq: not found"},
		{"our own words", errors.New("not found"), "not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			before := r.host.String()
			r.mustAdd(pod1, threeNetworks(pod1))
			r.host.Transcript()
			r.host.On("DEL net-a", fakehost.Once(fakehost.Fail(c.err)))
			rec, err := r.Del(t.Context(), pod1, "eth0")
			r.delegates(delThree...)
			same(t, attach.Attached, rec.State)
			if c.want == "" {
				if err != nil {
					t.Errorf("DEL: %v", err)
				}
				if _, err := r.host.Record("pod-1"); !errors.Is(err, attach.ErrNoRecord) {
					t.Errorf("the record: %v", err)
				}
				return
			}
			same(t, "pod ns/pod-1: network ns/net-a (interface net1): DEL: "+c.want, err.Error())
			if got := r.host.String(); !strings.Contains(got, "record pod-1 detaching primary/eth0(detached) net-a/net1 net-b/net2(detached)\n") {
				t.Errorf("the host:\n%s", got)
			}
			r.mustDel(pod1)
			r.delegates("DEL net-a pod-1/net1")
			r.state(before)
		})
	}
}

func TestT17CodeOfTheDelegate(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.On("DEL net-a", fakehost.Fail(fmt.Errorf("plugin x: %w", storeDown)))
	r.host.On("DEL primary", fakehost.Fail(storeDown))
	_, err := r.Del(t.Context(), pod1, "eth0")
	fails(t, err, 117, "pod ns/pod-1: network ns/net-a (interface net1): DEL: plugin x: address store down\n"+
		"pod ns/pod-1: network primary (interface eth0): DEL: address store down")
}

func TestT17ProgressCannotBeRecorded(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.On("DEL net-a", fakehost.Once(fakehost.Fail(storeDown)))
	r.host.On("save detaching", fakehost.Fail(errors.New("no space left on device")))
	_, err := r.Del(t.Context(), pod1, "eth0")
	fails(t, err, 117, "pod ns/pod-1: network ns/net-a (interface net1): DEL: address store down\n"+
		"what is left to delete cannot be recorded: no space left on device")
	r.mustDel(pod1) // all are repeated, which is allowed
	r.state(before)
}

func TestT14DelAgain(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	r.mustDel(pod1)
	r.host.Transcript()
	for range 2 {
		_, err := r.Del(t.Context(), pod1, "eth0")
		if !errors.Is(err, attach.ErrNoRecord) {
			t.Errorf("DEL: %v, want %v", err, attach.ErrNoRecord)
		}
	}
	r.delegates()
	r.state(before)
}

func TestT15DamagedRecord(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.mustAdd(pod1, threeNetworks(pod1))
	r.host.Damage("pod-1")
	r.host.Transcript()
	r.mustDel(pod1)
	r.delegates(delThree...)
	r.state(before + "aside pod-1\n")
	if n := strings.Count(r.log.String(), "damaged"); n != 2 { // the message and the cause, on one line
		t.Errorf("the log:\n%s", r.log.String())
	}
}

func TestT15DamagedRecordAndNoCache(t *testing.T) {
	r := newRig(t)
	r.host.Damage("pod-1")
	_, err := r.Del(t.Context(), pod1, "eth0")
	if !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("DEL: %v, want %v", err, attach.ErrNoRecord)
	}
	r.host.Transcript()
	r.host.Damage("pod-2")
	r.mustAdd(pod2, planOf(pod2, primary()))
	r.delegates("ADD primary pod-2/eth0")
}

func TestT15CannotSetAside(t *testing.T) {
	r := newRig(t)
	r.host.Damage("pod-1")
	before := r.host.String()
	r.host.On("set aside", fakehost.Fail(errors.New("read-only file system")))
	_, err := r.Del(t.Context(), pod1, "eth0")
	fails(t, err, types.ErrInternal, "read-only file system")
	r.state(before)
}

// v4 leaves the primary network's interface to the runtime, and keeps no outcomes.
func TestR9DelOfV4sRecord(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	rec := r.mustAdd(pod1, threeNetworks(pod1))
	rec.Origin, rec.Outcomes, rec.Plan.Attachments[0].Interface = attach.FromV4, nil, ""
	r.host.PutRecord(rec)
	r.host.Transcript()
	r.host.On("DEL primary", fakehost.Once(fakehost.Fail(storeDown)))
	_, err := r.Del(t.Context(), pod1, "eth0")
	fails(t, err, 117, "pod ns/pod-1: network primary (interface eth0): DEL: address store down")
	r.delegates(delThree...)
	r.mustDel(pod1)
	r.delegates("DEL primary pod-1/eth0")
	r.state(before)
}

// A network that refuses ADD, and DEL too, never keeps its pod from going: a NAD that
// its plugin cannot read. Its clean-up stays owed, for an hour.
func TestT17RefusedNetworkKeepsNoPod(t *testing.T) {
	bad := answer{"fake", types.NewError(types.ErrInvalidNetworkConfig, "invalid CIDR address: 172.30.0.0/99", "")}
	r := newRig(t)
	before := r.host.String()
	down := true
	r.host.On("ADD net-b", fakehost.Fail(bad))
	r.host.On("DEL net-b", func(context.Context) error {
		if down {
			return bad
		}
		return nil
	})
	_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
	fails(t, err, types.ErrInvalidNetworkConfig, "pod ns/pod-1: network ns/net-b (interface net2): ADD: invalid CIDR address: 172.30.0.0/99")
	owed := r.host.String()
	if !strings.Contains(owed, "record pod-1 detaching primary/eth0(detached) net-a/net1(detached) net-b/net2(no result)\n") {
		t.Errorf("the host:\n%s", owed)
	}
	for range 2 {
		r.host.Transcript()
		r.mustDel(pod1)
		r.delegates("DEL net-b pod-1/net2")
		r.state(owed)
	}
	down = false
	r.mustDel(pod1)
	r.state(before)

	down = true
	_, _ = r.Add(t.Context(), pod1, threeNetworks(pod1))
	r.Now = func() time.Time { return birth.Add(time.Hour) }
	r.mustDel(pod1)
	if _, err := r.host.Record("pod-1"); !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("the record after an hour: %v", err)
	}
}

// answer is how cnirun tells what a plugin said.
type answer struct {
	plugin string
	err    *types.Error
}

func (a answer) Error() string      { return a.err.Error() }
func (a answer) AnsweredBy() string { return a.plugin }
func (a answer) Unwrap() error      { return a.err }

// Which failures of ADD are the plugin's last word: after the others, a failing DEL is
// a failure.
func TestT17NotYetIsNoRefusal(t *testing.T) {
	for _, notYet := range []error{
		answer{"fake", types.NewError(types.ErrTryAgainLater, "not now", "")},
		answer{"", types.NewError(types.ErrInternal, "killed", "")},
		answer{"tuning", types.NewError(types.ErrInternal, "no such sysctl", "")}, // and it is another plugin whose DEL fails
		errors.New("a plugin that was not run"),
	} {
		r := newRig(t)
		r.host.On("ADD net-b", fakehost.Fail(notYet))
		r.host.On("DEL net-b", fakehost.Fail(answer{"fake", storeDown}))
		if _, err := r.Add(t.Context(), pod1, threeNetworks(pod1)); err == nil {
			t.Error("ADD succeeded")
		}
		_, err := r.Del(t.Context(), pod1, "eth0")
		fails(t, err, 117, "pod ns/pod-1: network ns/net-b (interface net2): DEL: address store down")
	}
}
