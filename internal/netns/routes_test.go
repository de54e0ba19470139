package netns

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

func drop4(dev string) attach.DefaultRoute { return attach.DefaultRoute{Interface: dev} }
func drop6(dev string) attach.DefaultRoute { return attach.DefaultRoute{Interface: dev, V6: true} }
func add(dev, gw string) attach.DefaultRoute {
	return attach.DefaultRoute{Interface: dev, V6: strings.Contains(gw, ":"), Gateway: addr(gw)}
}

type routes = []attach.DefaultRoute

// Each change is made, compared, and undone, which must give the whole table back.
func TestT21DefaultRoutes(t *testing.T) {
	eth4, eth6 := spec{gw: "10.0.0.1", dev: "eth0"}, spec{gw: "fd00::1", dev: "eth0"}
	ra := spec{gw: "fe80::1", dev: "eth0", proto: unix.RTPROT_RA, metric: 1024}
	for name, test := range map[string]struct {
		before []spec
		change attach.RouteChange
		want   []string
	}{
		"IPv4, IPv6 untouched": {
			[]spec{eth4, eth6},
			attach.RouteChange{Drop: routes{drop4("eth0")}, Add: routes{add("net1", "10.1.0.1")}},
			[]string{"10.1.0.1 net1 0", "fd00::1 eth0 1024"},
		},
		"IPv6, IPv4 untouched": {
			[]spec{eth4, eth6},
			attach.RouteChange{Drop: routes{drop6("eth0")}, Add: routes{add("net1", "fd01::1")}},
			[]string{"10.0.0.1 eth0 0", "fd01::1 net1 1024"},
		},
		"both": {
			[]spec{eth4, eth6},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"own routes kept (empty list)": {
			[]spec{eth4, eth6, {gw: "10.1.0.1", dev: "net1", metric: 7}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}},
			[]string{"10.1.0.1 net1 7"},
		},
		"nothing": {[]spec{eth4, eth6}, attach.RouteChange{}, []string{"10.0.0.1 eth0 0", "fd00::1 eth0 1024"}},
		"no destination, with a metric": {
			[]spec{{gw: "10.0.0.1", dev: "eth0", noDst: true, metric: 100}, {gw: "fd00::1", dev: "eth0", noDst: true, metric: 50}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"no destination, no metric": {
			[]spec{{gw: "10.0.0.1", dev: "eth0", noDst: true}, {gw: "fd00::1", dev: "eth0", noDst: true}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"several metrics": {
			[]spec{eth4, {gw: "10.0.0.1", dev: "eth0", metric: 5}, {gw: "10.0.0.9", dev: "eth0", metric: 5}, eth6, {gw: "fd00::9", dev: "eth0", metric: 5}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1")}},
			[]string{"10.1.0.1 net1 0"},
		},
		"already present": {
			[]spec{eth4, {gw: "10.1.0.1", dev: "net1", metric: 9}},
			attach.RouteChange{Drop: routes{drop4("eth0")}, Add: routes{add("net1", "10.1.0.1")}},
			[]string{"10.1.0.1 net1 9"},
		},
		"already present, and told to drop the interface's": {
			[]spec{{gw: "10.1.0.1", dev: "net1", metric: 9}, {gw: "10.1.0.7", dev: "net1", metric: 3}, {gw: "fd01::1", dev: "net1", metric: 9}},
			attach.RouteChange{Drop: routes{drop4("net1"), drop6("net1")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 9", "fd01::1 net1 9"},
		},
		"another gateway of the same interface": {
			[]spec{{gw: "10.1.0.7", dev: "net1"}, {gw: "fd01::7", dev: "net1"}},
			attach.RouteChange{Drop: routes{drop4("net1"), drop6("net1")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"another interface not told to be dropped": {
			[]spec{{gw: "10.0.0.1", dev: "eth0", metric: 100}, {gw: "fd00::1", dev: "eth0", metric: 2000}},
			attach.RouteChange{Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "10.0.0.1 eth0 100", "fd01::1 net1 1024", "fd00::1 eth0 2000"},
		},
		"another interface not told to be dropped, same metric": {
			[]spec{eth4, eth6},
			attach.RouteChange{Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"from a router advertisement": {
			[]spec{ra, eth4},
			attach.RouteChange{Drop: routes{drop6("eth0")}, Add: routes{add("net1", "fe80::1")}},
			[]string{"10.0.0.1 eth0 0", "fe80::1 net1 1024"},
		},
		"no gateway": {
			[]spec{{dev: "eth0", linkOnly: true}, {dev: "eth0", v6: true}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"multipath loses a hop": {
			[]spec{{hops: []spec{eth4, {gw: "10.1.0.1", dev: "net1"}}}, {hops: []spec{eth6, {gw: "fd01::1", dev: "net1"}}}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"multipath keeps two hops": {
			[]spec{{hops: []spec{eth4, {gw: "10.1.0.1", dev: "net1"}, {gw: "10.1.0.7", dev: "net1"}}, metric: 4}, {hops: []spec{eth6, {gw: "fd01::1", dev: "net1"}, {gw: "fd01::7", dev: "net1"}}}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}},
			[]string{"10.1.0.1 net1 10.1.0.7 net1 4", "fd01::1 net1 fd01::7 net1 1024"},
		},
		"multipath in the way": {
			[]spec{{hops: []spec{eth4, {gw: "10.0.0.7", dev: "eth0"}}}, {hops: []spec{eth6, {gw: "fd01::1", dev: "net1"}}}},
			attach.RouteChange{Add: routes{add("net1", "10.1.0.1"), add("net1", "fd01::1")}},
			[]string{"10.1.0.1 net1 0", "fd01::1 net1 1024"},
		},
		"multipath dropped whole": {
			[]spec{{hops: []spec{eth4, {gw: "10.0.0.7", dev: "eth0"}}}, {hops: []spec{eth6, {gw: "fd00::7", dev: "eth0"}}}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}},
			nil,
		},
		"order within a metric": {
			[]spec{eth4, {gw: "10.1.0.1", dev: "net1"}, {gw: "10.0.0.9", dev: "eth0"}, ra, {gw: "fe80::1", dev: "net1", proto: unix.RTPROT_RA, metric: 1024}},
			attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}},
			[]string{"10.1.0.1 net1 0", "fe80::1 net1 1024"},
		},
		"IPv4 written as IPv6": {
			[]spec{eth4},
			attach.RouteChange{Drop: routes{drop4("eth0")}, Add: routes{{Interface: "net1", Gateway: addr("::ffff:10.1.0.1")}}},
			[]string{"10.1.0.1 net1 0"},
		},
		"an interface that is not there has nothing to drop": {[]spec{eth4}, attach.RouteChange{Drop: routes{drop4("vhost0"), drop4("eth0")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.routes(test.before...)
			before := p.table()
			undo, err := New("").Apply(t.Context(), p.path, test.change)
			p.must(err)
			if diff := cmp.Diff(test.want, p.defaults()); diff != "" {
				t.Errorf("default routes (-want +got):\n%s", diff)
			}
			p.must(undo(t.Context()))
			if diff := cmp.Diff(before, p.table()); diff != "" {
				t.Errorf("the table after undo (-before +after):\n%s", diff)
			}
			p.must(undo(t.Context()))
			if diff := cmp.Diff(before, p.table()); diff != "" {
				t.Errorf("the table after a second undo (-before +after):\n%s", diff)
			}
		})
	}
}

func TestT21FailureChangesNothing(t *testing.T) {
	rich := []spec{
		{gw: "10.0.0.1", dev: "eth0", metric: 100, mtu: 1300, src: "10.0.0.2", proto: unix.RTPROT_STATIC},
		{gw: "10.1.0.1", dev: "net1"},
		{gw: "10.0.0.9", dev: "eth0"},
		{gw: "10.1.0.9", dev: "net1"},
		{dev: "eth0", linkOnly: true, metric: 300},
		{hops: []spec{{gw: "10.0.0.1", dev: "eth0"}, {gw: "10.1.0.1", dev: "net1"}}, metric: 400, mtu: 1200},
		{gw: "fd00::1", dev: "eth0", metric: 100, mtu: 1290, src: "fd00::2", proto: unix.RTPROT_DHCP},
		{gw: "fe80::1", dev: "eth0", metric: 1024, proto: unix.RTPROT_RA},
		{hops: []spec{{gw: "fd00::1", dev: "eth0"}, {gw: "fd01::1", dev: "net1"}}, metric: 2000},
	}
	dropAll := routes{drop4("eth0"), drop6("eth0")}
	for name, test := range map[string]struct {
		add   routes
		text  string
		cause error
	}{
		"unreachable gateway": {
			routes{add("net1", "fd01::1"), add("net1", "10.9.9.9")},
			"changing the default routes in $PATH: gateway 10.9.9.9 is not on a network of net1 (which has 10.1.0.2/24, fd01::2/64, fe80::3/64): network is unreachable", unix.ENETUNREACH,
		},
		"unreachable gateway, IPv6": {
			routes{add("net1", "10.1.0.1"), add("net1", "fd77::1")},
			"changing the default routes in $PATH: gateway fd77::1 is not on a network of net1 (which has 10.1.0.2/24, fd01::2/64, fe80::3/64): no route to host", unix.EHOSTUNREACH,
		},
		"the interface's own address": {
			routes{add("net1", "10.1.0.1"), add("net1", "fd01::2")},
			"changing the default routes in $PATH: adding a default route via fd01::2 through net1: invalid argument", unix.EINVAL,
		},
		"no such interface": {routes{add("net7", "10.1.0.1")}, "no interface net7 in $PATH: file does not exist", os.ErrNotExist},
		"no address": {
			routes{add("bare", "10.1.0.1")},
			"the default route in $PATH via 10.1.0.1 cannot go through bare, which has no IPv4 address (it has no addresses)", nil,
		},
		"no address of the family": {
			routes{add("only6", "10.1.0.1")},
			"the default route in $PATH via 10.1.0.1 cannot go through only6, which has no IPv4 address (it has fd02::2/64)", nil,
		},
		"no address of the family, IPv6": {
			routes{add("only4", "fd01::1")},
			"the default route in $PATH via fd01::1 cannot go through only4, which has no IPv6 address (it has 10.2.0.2/24)", nil,
		},
		"link-local address only": {
			routes{add("local", "fd01::1")},
			"the default route in $PATH via fd01::1 cannot go through local, which has no IPv6 address (it has fe80::9/64)", nil,
		},
		"gateway of the wrong family": {
			routes{{Interface: "net1", V6: true, Gateway: addr("10.1.0.1")}},
			"the default route in $PATH through net1 wants an IPv6 gateway, and 10.1.0.1 is none", nil,
		},
		"no gateway": {
			routes{{Interface: "net1"}},
			"the default route in $PATH through net1 wants an IPv4 gateway, and invalid IP is none", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.routes(rich...)
			switch dev := test.add[0].Interface; dev {
			case "only6":
				p.rename("bare", dev)
				p.address(dev, "fd02::2/64")
			case "only4":
				p.rename("bare", dev)
				p.address(dev, "10.2.0.2/24")
			case "local":
				p.rename("bare", dev)
				p.address(dev, "fe80::9/64")
			}
			before := p.table()
			undo, err := New("").Apply(t.Context(), p.path, attach.RouteChange{Drop: dropAll, Add: test.add})
			text := strings.ReplaceAll(test.text, "$PATH", p.path)
			if undo != nil || err == nil || err.Error() != text || (test.cause != nil && !errors.Is(err, test.cause)) {
				t.Errorf("got  %v\nwant %s (cause %v)", err, text, test.cause)
			}
			if diff := cmp.Diff(before, p.table()); diff != "" {
				t.Errorf("the table (-before +after):\n%s", diff)
			}
		})
	}
}

func (p pod) rename(from, to string) {
	p.Helper()
	p.in(func() error {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(link, to)
	})
}

// The kernel shows the state of the link in a route's flags, and refuses to take
// them back.
func TestT21LinkDown(t *testing.T) {
	p := newPod(t)
	p.routes(spec{gw: "10.0.0.1", dev: "eth0"}, spec{gw: "fd00::1", dev: "eth0"}, spec{hops: []spec{{gw: "10.0.0.1", dev: "eth0"}, {gw: "10.1.0.1", dev: "net1"}}, metric: 5})
	p.in(func() error {
		link, err := netlink.LinkByName("peth0")
		return errors.Join(err, netlink.LinkSetDown(link))
	})
	seen := func() (n int) {
		p.in(func() error {
			for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
				all, err := netlink.RouteList(nil, fam)
				if err != nil {
					return err
				}
				for _, r := range all {
					for _, hop := range hops(r) {
						if isDefault(r) && hop.Flags&unix.RTNH_F_LINKDOWN != 0 {
							n++
						}
					}
				}
			}
			return nil
		})
		return n
	}
	for start := time.Now(); seen() < 3; {
		if time.Since(start) > 20*time.Second {
			t.Fatal("the kernel does not mark the routes")
		}
	}
	before := p.table()
	undo, err := New("").Apply(t.Context(), p.path, attach.RouteChange{Drop: routes{drop4("eth0"), drop6("eth0")}, Add: routes{add("net1", "10.1.0.1")}})
	p.must(err)
	if diff := cmp.Diff([]string{"10.1.0.1 net1 5"}, p.defaults()); diff != "" {
		t.Errorf("default routes (-want +got):\n%s", diff)
	}
	p.must(undo(t.Context()))
	if diff := cmp.Diff(before, p.table()); diff != "" {
		t.Errorf("the table after undo (-before +after):\n%s", diff)
	}
}

func TestT21UndoLeavesLaterRoutes(t *testing.T) {
	p := newPod(t)
	p.routes(spec{gw: "10.0.0.1", dev: "eth0"})
	undo, err := New("").Apply(t.Context(), p.path, attach.RouteChange{Drop: routes{drop4("eth0")}, Add: routes{add("net1", "10.1.0.1")}})
	p.must(err)
	p.routes(spec{gw: "10.1.0.7", dev: "net1", metric: 8})
	p.in(func() error { // what is gone already needs no undoing
		return netlink.RouteDel(&netlink.Route{Dst: everything(netlink.FAMILY_V4), LinkIndex: index("net1"), Gw: net.ParseIP("10.1.0.1")})
	})
	p.must(undo(t.Context()))
	if diff := cmp.Diff([]string{"10.0.0.1 eth0 0", "10.1.0.7 net1 8"}, p.defaults()); diff != "" {
		t.Errorf("default routes (-want +got):\n%s", diff)
	}
	p.must(Delete(p.path))
	if err := undo(t.Context()); !errors.Is(err, attach.ErrNoNetNS) {
		t.Errorf("undo in a namespace that is gone: %v", err)
	}
}

func TestT21DefaultIsNilOrZero(t *testing.T) {
	for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if !isDefault(netlink.Route{Family: fam}) || !isDefault(netlink.Route{Family: fam, Dst: everything(fam)}) {
			t.Errorf("family %d: nil and a length of 0 are both the default destination", fam)
		}
	}
}
