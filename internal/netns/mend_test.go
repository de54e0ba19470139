package netns

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/multus-thick/multus/internal/attach"
)

// TestR15NamespaceGone: what cannot be seen is not gone.
func TestR15NamespaceGone(t *testing.T) {
	root := t.TempDir()
	gone := func(path string) bool { return Gone(root, path) }
	for _, path := range []string{"", "/run/netns/cni-1", "/proc/1/ns/net"} {
		if gone(path) {
			t.Errorf("%q is taken for gone where its folder is not to be seen", path)
		}
	}
	for _, dir := range []string{"/run/netns", "/proc/1/ns"} { // processes have other numbers here
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "run/netns/cni-2"), nil, 0o444); err != nil { // a mount that is not to be seen here
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, path := range []string{"", "/run/netns/cni-1", "/run/netns/cni-2", "/proc/1/ns/net"} {
		got[path] = gone(path)
	}
	want := map[string]bool{"": false, "/run/netns/cni-1": true, "/run/netns/cni-2": false, "/proc/1/ns/net": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !Gone("", filepath.Join(root, "absent/cni-1")) {
		t.Error("the host itself knows what is gone")
	}
}

// TestI5_Mend: what was lost is there again, and so is all else.
func TestI5_Mend(t *testing.T) {
	p := newPod(t)
	route := func(dst, gw string) attach.Route {
		return attach.Route{Dst: netip.MustParsePrefix(dst), GW: netip.MustParseAddr(gw)}
	}
	routes := []attach.Route{route("0.0.0.0/0", "10.1.0.1"), route("10.9.0.0/16", "10.1.0.1"), route("::/0", "fd01::1")}
	all := attach.Lost{Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd01::2/64")}, Routes: routes}
	links := New("")
	p.must(links.Mend(t.Context(), p.path, "net1", attach.Lost{Routes: routes})) // as the plugins made it
	facts := func() attach.Facts {
		f, err := links.Facts(t.Context(), p.path, "net1")
		p.must(err)
		return f
	}
	before := facts()
	if len(before.Addresses) != 2 || len(before.Routes) != 3 {
		t.Fatalf("the pod has %+v", before)
	}
	for _, lose := range map[string]func(netlink.Link) error{
		"all of it":  netlink.LinkSetDown,
		"an address": func(l netlink.Link) error { return netlink.AddrDel(l, &netlink.Addr{IPNet: network(all.Addresses[0])}) },
		"nothing":    func(netlink.Link) error { return nil },
	} {
		p.in(func() error {
			link, err := netlink.LinkByName("net1")
			p.must(err)
			return lose(link)
		})
		p.must(links.Mend(t.Context(), p.path, "net1", all))
		if diff := cmp.Diff(before, facts(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
	}
	p.routes(spec{gw: "10.0.0.1", dev: "eth0", metric: 7})
	p.in(func() error {
		return netlink.RouteDel(&netlink.Route{Dst: network(routes[0].Dst), LinkIndex: index("net1")})
	})
	p.routes(spec{gw: "10.0.0.1", dev: "eth0"}) // it goes elsewhere now
	err := links.Mend(t.Context(), p.path, "net1", attach.Lost{Routes: routes[:1]})
	if want := "adding the route to 0.0.0.0/0 through net1 in " + p.path + ": another route to it is there: file exists"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
