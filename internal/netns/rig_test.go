package netns

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pod is a namespace with the interfaces eth0 and net1, both of both families, and
// bare, which has no address. Their peers are in it as well.
type pod struct {
	*testing.T
	path string
}

func newPod(t *testing.T) pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	path, err := Create(t.TempDir(), "pod")
	if err != nil {
		t.Fatal(err)
	}
	p := pod{t, path}
	t.Cleanup(func() { p.must(Delete(path)) })
	p.in(func() error {
		// Without addresses that the kernel makes up later, tables can be compared.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/addr_gen_mode", []byte("1"), 0); err != nil {
			return err
		}
		for i, name := range []string{"eth0", "net1", "bare"} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU, attrs.HardwareAddr = name, 1400+i, net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "p" + name}); err != nil {
				return err
			}
			for _, up := range []string{"p" + name, name} {
				link, err := netlink.LinkByName(up)
				if err != nil {
					return err
				}
				if err := netlink.LinkSetUp(link); err != nil {
					return err
				}
			}
		}
		return nil
	})
	p.address("eth0", "10.0.0.2/24", "fd00::2/64", "fe80::2/64")
	p.address("net1", "10.1.0.2/24", "fd01::2/64", "fe80::3/64")
	return p
}

func (p pod) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p pod) in(f func() error) {
	p.Helper()
	p.must(Do(p.path, f))
}

func (p pod) address(dev string, addresses ...string) {
	p.Helper()
	p.in(func() error {
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			link, err := netlink.LinkByName(dev)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// spec is a default route of a test.
type spec struct {
	gw, dev             string
	hops                []spec
	metric, mtu, proto  int
	src                 string
	v6, noDst, linkOnly bool
}

func (p pod) routes(specs ...spec) {
	p.Helper()
	p.in(func() error {
		for _, s := range specs {
			first := s
			if s.hops != nil {
				first = s.hops[0]
			}
			fam := family(s.v6 || strings.Contains(first.gw, ":"))
			r := netlink.Route{Family: fam, Dst: everything(fam), Priority: s.metric, MTU: s.mtu, Src: net.ParseIP(s.src), Protocol: netlink.RouteProtocol(s.proto)}
			if s.noDst {
				r.Dst = nil
			}
			if s.linkOnly {
				r.Scope = netlink.SCOPE_LINK
			}
			for _, hop := range s.hops {
				r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: index(hop.dev), Gw: net.ParseIP(hop.gw)})
			}
			if s.hops == nil {
				r.LinkIndex, r.Gw = index(s.dev), net.ParseIP(s.gw)
			}
			if err := netlink.RouteAppend(&r); err != nil {
				return fmt.Errorf("%+v: %w", s, err)
			}
		}
		return nil
	})
}

func index(dev string) int {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}

// table is every route of every table, with all attributes. The local table is the
// kernel's own, and it fills it when it likes.
func (p pod) table() (lines []string) {
	p.Helper()
	p.in(func() error {
		for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.RouteListFiltered(fam, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Table == unix.RT_TABLE_LOCAL {
					continue
				}
				raw, err := json.Marshal(r)
				if err != nil {
					return err
				}
				lines = append(lines, string(raw))
			}
		}
		return nil
	})
	return lines
}

// defaults are the default routes of the main table, in short.
func (p pod) defaults() (lines []string) {
	p.Helper()
	p.in(func() error {
		for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.RouteList(nil, fam)
			if err != nil {
				return err
			}
			for _, r := range all {
				if !isDefault(r) {
					continue
				}
				line := ""
				for _, hop := range hops(r) {
					link, err := netlink.LinkByIndex(hop.LinkIndex)
					if err != nil {
						return err
					}
					line += strings.TrimPrefix(hop.Gw.String(), "<nil>") + " " + link.Attrs().Name + " "
				}
				lines = append(lines, line+fmt.Sprint(r.Priority))
			}
		}
		return nil
	})
	return lines
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
