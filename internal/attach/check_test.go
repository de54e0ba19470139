package attach_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, a := range all {
		p = append(p, netip.MustParsePrefix(a))
	}
	return p
}

// CHECK of a pod whose default route we moved, after something happened to it.
func TestR18Check(t *testing.T) {
	const mac = "02:00:0a:01:00:03"
	for _, c := range []struct {
		name string
		harm func(*rig)
		code uint
		want string // empty for success
	}{
		{"nothing happened", func(*rig) {}, 0, ""},
		{"further addresses and upper-case MAC", func(r *rig) {
			r.host.SetLink(pod1.NetNS, "net1", &attach.Facts{MAC: "02:00:0A:01:00:03", Addresses: prefixes("10.1.0.3/24", "10.1.0.77/24")})
		}, 0, ""},
		{"MAC changed", func(r *rig) {
			r.host.SetLink(pod1.NetNS, "net1", &attach.Facts{MAC: "02:00:00:00:00:99", Addresses: prefixes("10.1.0.3/24")})
		}, 999, "pod ns/pod-1: network ns/net-a (interface net1): CHECK: the interface net1 has the MAC 02:00:00:00:00:99, it was given " + mac},
		{
			"address lost", func(r *rig) {
				r.host.SetLink(pod1.NetNS, "net1", &attach.Facts{MAC: mac, Addresses: prefixes("10.1.0.4/24")})
			},
			999, "pod ns/pod-1: network ns/net-a (interface net1): CHECK: the interface net1 has lost the address 10.1.0.3/24",
		},
		{
			"links gone", func(r *rig) { r.host.SetLink(pod1.NetNS, "net2", nil); r.host.SetLink(pod1.NetNS, "eth0", nil) },
			999, "pod ns/pod-1: network primary (interface eth0): CHECK: the interface eth0 is gone\n" +
				"pod ns/pod-1: network ns/net-b (interface net2): CHECK: the interface net2 is gone",
		},
		{
			"default routes lost", func(r *rig) { r.host.DropRoutes(pod1.NetNS, false); r.host.DropRoutes(pod1.NetNS, true) },
			999, "pod ns/pod-1: network primary (interface eth0): CHECK: the interface eth0 has lost its default route ::/0\n" +
				"pod ns/pod-1: network ns/net-a (interface net1): CHECK: the interface net1 has lost its default route 0.0.0.0/0",
		},
		{
			"namespace gone", func(r *rig) { r.host.RemoveNetNS(pod1.NetNS) },
			999, `pod ns/pod-1: network primary (interface eth0): CHECK: "/run/netns/pod-1": no such network namespace` + "\n" +
				`pod ns/pod-1: network ns/net-a (interface net1): CHECK: "/run/netns/pod-1": no such network namespace` + "\n" +
				`pod ns/pod-1: network ns/net-b (interface net2): CHECK: "/run/netns/pod-1": no such network namespace`,
		},
		{
			"the primary network says no", func(r *rig) { r.host.On("CHECK primary", fakehost.Fail(storeDown)) },
			117, "pod ns/pod-1: network primary (interface eth0): CHECK: address store down",
		},
		{"the ADD did not finish", func(r *rig) {
			rec, _ := r.host.Record("pod-1")
			rec.State, rec.Outcomes = attach.Intent, nil
			rec.Plan.Attachments = rec.Plan.Attachments[:1]
			r.host.PutRecord(rec)
		}, types.ErrUnknownContainer, "pod ns/pod-1: network primary (interface eth0): CHECK: its ADD did not finish"},
		{"the record is damaged", func(r *rig) { r.host.Damage("pod-1") }, 999, "the record of the sandbox is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.mustAdd(pod1, threeNetworks(pod1))
			c.harm(r)
			before := r.host.String()
			err := r.Check(t.Context(), pod1, "eth0")
			if c.want != "" {
				fails(t, err, c.code, c.want)
			} else if err != nil {
				t.Errorf("CHECK: %v", err)
			}
			r.state(before)
		})
	}
}

func TestR18CheckOfOneFamily(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, primary()))
	r.host.DropRoutes(pod1.NetNS, false)
	fails(t, r.Check(t.Context(), pod1, "eth0"), types.ErrInternal, "pod ns/pod-1: network primary (interface eth0): CHECK: the interface eth0 has lost its default route 0.0.0.0/0")
}

// Who is asked, and with which prevResult: the one with the routes as they are now.
func TestR18CheckDelegates(t *testing.T) {
	for _, all := range []bool{false, true} {
		r := newRig(t)
		rec := r.mustAdd(pod1, threeNetworks(pod1))
		r.CheckDelegates = all
		n := len(r.host.Calls())
		if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		var want, got []string
		for i, a := range rec.Plan.Attachments {
			if i == 0 || all {
				want = append(want, "CHECK "+a.Interface+" "+string(rec.Outcomes[i].Routed))
			}
		}
		for _, c := range r.host.Calls()[n:] {
			got = append(got, c.Verb+" "+c.Interface+" "+string(c.Prev))
		}
		same(t, want, got)
	}
}

func TestR18CheckWithoutRecord(t *testing.T) {
	r := newRig(t)
	if err := r.Check(t.Context(), pod1, "eth0"); !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("CHECK: %v, want %v", err, attach.ErrNoRecord)
	}
}

// A result that was not true when ADD ended cannot become less true: a userspace
// driver has the interface. The other networks are compared all the same.
func TestR14CheckOfUserspaceDriver(t *testing.T) {
	r := newRig(t)
	r.Runner = &edited{r.host.Process(), func(a attach.Attachment, result string) string {
		if a.Interface == "net2" {
			r.host.SetLink(a.Sandbox.NetNS, "net2", nil)
		}
		return result
	}}
	r.mustAdd(pod1, threeNetworks(pod1))
	if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	r.host.SetLink(pod1.NetNS, "net1", nil)
	fails(t, r.Check(t.Context(), pod1, "eth0"), types.ErrInternal, "pod ns/pod-1: network ns/net-a (interface net1): CHECK: the interface net1 is gone")
}

// v4's records need no results.
func TestR14CheckOfV4sRecord(t *testing.T) {
	r := newRig(t)
	rec := r.mustAdd(pod1, threeNetworks(pod1))
	rec.Origin, rec.Outcomes, rec.Plan.Attachments[0].Interface = attach.FromV4, nil, ""
	r.host.PutRecord(rec)
	if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	rec.Outcomes = []attach.Outcome{{Result: []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.0.0.9/24"}]}`)}}
	r.host.PutRecord(rec)
	fails(t, r.Check(t.Context(), pod1, "eth0"), types.ErrInternal, "pod ns/pod-1: network primary (interface eth0): CHECK: the interface eth0 has lost the address 10.0.0.9/24")
}

// Results of several interfaces: those of the host are not looked for, addresses
// belong to the interface they name.
func TestR18CheckOfSeveralInterfaces(t *testing.T) {
	r := newRig(t)
	rec := r.mustAdd(pod1, planOf(pod1, primary(), netA()))
	rec.Outcomes[0].Result = []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/x"},{"name":"net1","sandbox":"/x"}],
		"ips":[{"interface":2,"address":"10.1.0.3/24"},{"interface":1,"address":"10.0.0.3/24"},{"address":"fd00::3/64"}],"routes":[{"dst":"::/0","table":100},{"dst":"10.0.0.0/8"}]}`)
	r.host.PutRecord(rec)
	r.host.DropRoutes(pod1.NetNS, false)
	r.host.DropRoutes(pod1.NetNS, true)
	if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

func TestC1_5StatusEntries(t *testing.T) {
	r := newRig(t)
	p := threeNetworks(pod1)
	aux := network("aux", "net3", "")
	aux.Role = plan.Auxiliary
	p.Attachments = append(p.Attachments, aux)
	rec := r.mustAdd(pod1, p)
	rec.Outcomes[2].Result = nil
	rec.Outcomes[2].Routed = nil
	type entry struct {
		Name, Interface string
		Default         bool
		Gateway         []string
	}
	var got []entry
	for _, all := range attach.StatusEntries(rec) {
		for _, e := range all {
			got = append(got, entry{e.Name, e.Interface, e.Default, e.Gateway})
		}
	}
	same(t, []entry{{"primary", "eth0", true, []string{"fd00::1"}}, {"ns/net-a", "net1", false, []string{"10.1.0.1"}}}, got)
}
