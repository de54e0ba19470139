package attach_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var (
	gw4 = netip.MustParseAddr("10.3.0.1")
	gw6 = netip.MustParseAddr("fd03::1")
)

// netC has both families, default routes of its own in several spellings, and routes
// that are none of anybody's business.
func netC() plan.Attachment {
	return network("net-c", "net1", `,"subnets":["10.3.0.0/24","fd03::/64"],"routes":[{"dst":"10.9.0.0/16"},{"dst":"::0/0","gw":"fd03::9"},`+
		`{"dst":"0.0.0.0/0","gw":"10.3.0.9","mtu":1400},{"dst":"0.0.0.0/0","gw":"10.3.0.9","table":100},{"dst":"::/0","gw":"fd03::9","table":254}]`)
}

// Its table makes it long: each case shows the whole outcome.
func TestT21DefaultRoutes(t *testing.T) {
	type wish = plan.RouteWish
	drop46 := wish{DropV4: true, DropV6: true}
	for _, c := range []struct {
		name           string
		primary, other wish
		change         string // of the routes, empty for none
		routes         string // in the namespace
		routed         [2]string
	}{
		{
			name:    "IPv4",
			primary: wish{DropV4: true}, other: wish{DropV4: true, Gateways: []netip.Addr{gw4}},
			change: "routes -[eth0/v4 net1/v4] +[net1/v4/10.3.0.1]",
			routes: "  default via fd00::1 dev eth0\n  default via fd03::9 dev net1\n  default via 10.3.0.1 dev net1\n",
			routed: [2]string{
				`[{"dst":"::0/0","gw":"fd00::1"}]`,
				`[{"dst":"10.9.0.0/16"},{"dst":"::0/0","gw":"fd03::9"},{"dst":"0.0.0.0/0","gw":"10.3.0.9","table":100},{"dst":"::/0","gw":"fd03::9","table":254},{"dst":"0.0.0.0/0","gw":"10.3.0.1"}]`,
			},
		},
		{
			name:    "IPv6",
			primary: wish{DropV6: true}, other: wish{DropV6: true, Gateways: []netip.Addr{gw6}},
			change: "routes -[eth0/v6 net1/v6] +[net1/v6/fd03::1]",
			routes: "  default via 10.0.0.1 dev eth0\n  default via 10.3.0.9 dev net1\n  default via fd03::1 dev net1\n",
			routed: [2]string{
				`[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]`,
				`[{"dst":"10.9.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.3.0.9","mtu":1400},{"dst":"0.0.0.0/0","gw":"10.3.0.9","table":100},{"dst":"::/0","gw":"fd03::1"}]`,
			},
		},
		{
			name:    "both, one of them as an IPv4-mapped address",
			primary: drop46, other: wish{DropV4: true, DropV6: true, Gateways: []netip.Addr{gw6, netip.AddrFrom16(gw4.As16())}},
			change: "routes -[eth0/v4 eth0/v6 net1/v4 net1/v6] +[net1/v6/fd03::1 net1/v4/10.3.0.1]",
			routes: "  default via fd03::1 dev net1\n  default via 10.3.0.1 dev net1\n",
			routed: [2]string{
				``,
				`[{"dst":"10.9.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.3.0.9","table":100},{"dst":"::/0","gw":"fd03::1"},{"dst":"0.0.0.0/0","gw":"10.3.0.1"}]`,
			},
		},
		{
			name:    "an empty list: its own stay, the others' go",
			primary: drop46, other: wish{Own: true},
			change: "routes -[eth0/v4 eth0/v6] +[]",
			routes: "  default via fd03::9 dev net1\n  default via 10.3.0.9 dev net1\n",
			routed: [2]string{``, `untouched`},
		},
		{
			name:   "no wishes",
			routes: "  default via 10.0.0.1 dev eth0\n  default via fd00::1 dev eth0\n  default via fd03::9 dev net1\n  default via 10.3.0.9 dev net1\n",
			routed: [2]string{`untouched`, `untouched`},
		},
		{
			name:    "already as wished",
			primary: wish{DropV4: true}, other: wish{DropV4: true, Gateways: []netip.Addr{netip.MustParseAddr("10.3.0.9")}},
			change: "routes -[eth0/v4 net1/v4] +[net1/v4/10.3.0.9]",
			routes: "  default via fd00::1 dev eth0\n  default via fd03::9 dev net1\n  default via 10.3.0.9 dev net1\n",
			routed: [2]string{
				`[{"dst":"::0/0","gw":"fd00::1"}]`,
				`[{"dst":"10.9.0.0/16"},{"dst":"::0/0","gw":"fd03::9"},{"dst":"0.0.0.0/0","gw":"10.3.0.9","table":100},{"dst":"::/0","gw":"fd03::9","table":254},{"dst":"0.0.0.0/0","gw":"10.3.0.9"}]`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			before := r.host.String()
			p := planOf(pod1, primary(), netC())
			p.Attachments[0].Routes, p.Attachments[1].Routes = c.primary, c.other
			rec := r.mustAdd(pod1, p)
			var change string
			for line := range strings.Lines(r.host.Transcript()) {
				if strings.HasPrefix(line, "routes ") {
					change = strings.TrimSpace(line)
				}
			}
			same(t, c.change, change)
			_, state, _ := strings.Cut(r.host.String(), "netns "+pod1.NetNS+"\n")
			state, _, _ = strings.Cut(state, "netns ")
			same(t, c.routes, state[strings.Index(state, "  default"):])
			for i, out := range rec.Outcomes {
				same(t, string(routed(out.Result, c.routed[i])), string(out.Routed))
				if out.Unseen {
					t.Errorf("network %d is not as its result says", i)
				}
			}
			r.mustDel(pod1)
			r.state(before)
		})
	}
}

// routed is a result with other routes.
func routed(result []byte, routes string) []byte {
	if routes == "untouched" {
		return nil
	}
	text, _, _ := strings.Cut(string(result), `,"routes":`)
	text = strings.TrimSuffix(text, "}")
	if routes != "" {
		text += `,"routes":` + routes
	}
	return []byte(text + "}")
}

var undoThree = append([]string{"ADD primary pod-1/eth0", "ADD net-a pod-1/net1", "ADD net-b pod-1/net2"}, delThree...)

func TestT21RoutesCannotBeMoved(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	p := threeNetworks(pod1)
	p.Attachments[1].Routes.Gateways = []netip.Addr{gw6}
	_, err := r.Add(t.Context(), pod1, p)
	fails(t, err, types.ErrInternal, "pod ns/pod-1: default routes: the default route via fd03::1 cannot go through net1, which has no address of its family")
	r.delegates(undoThree...)
	r.state(before)
}

// What fails after the routes were moved puts them back before the networks go, and
// a delegate's failing DEL does not matter to that.
func TestT21RoutesArePutBack(t *testing.T) {
	r := newRig(t)
	before := r.host.String()
	r.host.On("save attached", fakehost.Fail(errors.New("no space left on device")))
	r.host.On("DEL primary", fakehost.Once(fakehost.Fail(storeDown)))
	_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
	fails(t, err, types.ErrInternal, "pod ns/pod-1: the outcome cannot be recorded: no space left on device")
	_, undo, _ := strings.Cut(r.host.Transcript(), "save attached\n")
	same(t, lines(append(append([]string{"unroute"}, delThree...), "save detaching")...), undo)
	if want := "default via 10.0.0.1 dev eth0\n  default via fd00::1 dev eth0\nnetns /run/netns/pod-2"; !strings.Contains(r.host.String(), want) {
		t.Errorf("the primary network's routes are not back:\n%s", r.host)
	}
	r.mustDel(pod1)
	r.state(before)
}

// Results before CNI 0.3.0 have their routes elsewhere; the kernel's are moved all the
// same, and CHECK does not hold them against the pod.
func TestT21OldResult(t *testing.T) {
	r := newRig(t)
	r.Runner = &edited{r.host.Process(), func(attach.Attachment, string) string {
		return `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.3/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`
	}}
	p := planOf(pod1, primary(), netC())
	p.Attachments[0].Routes.DropV4 = true
	p.Attachments[1].Routes = plan.RouteWish{DropV4: true, Gateways: []netip.Addr{gw4}}
	rec := r.mustAdd(pod1, p)
	for _, out := range rec.Outcomes {
		same(t, string(out.Result), string(out.Routed))
	}
	if err := r.Check(t.Context(), pod1, "eth0"); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

// A result that cannot be edited: the ADD fails and is undone, also where the routes
// cannot be put back.
func TestT21BrokenResult(t *testing.T) {
	for result, want := range map[string]string{
		`{"cniVersion":"1.0.0","routes":7}`: "has routes of the wrong type: ",
		`[]`:                                "is not a JSON object",
		`{"cniVersion":"1.0.0","routes":[{"dst":7}]}`: "",
	} {
		r := newRig(t)
		before := r.host.String()
		r.Runner = &edited{r.host.Process(), func(_ attach.Attachment, _ string) string { return result }}
		r.host.On("unroute", fakehost.Fail(errors.New("network is down")))
		_, err := r.Add(t.Context(), pod1, threeNetworks(pod1))
		if want == "" {
			if err != nil {
				t.Errorf("ADD: %v", err)
			}
			r.mustDel(pod1)
			r.state(before)
			continue
		}
		if pre := "pod ns/pod-1: network primary (interface eth0): ADD: the network's result " + want; err == nil || !strings.HasPrefix(err.Error(), pre) {
			t.Errorf("ADD: %v, want %s", err, pre)
		}
		r.delegates(undoThree...)
		if !strings.Contains(r.log.String(), "network is down") {
			t.Errorf("the log:\n%s", r.log.String())
		}
		r.state(before)
	}
}
