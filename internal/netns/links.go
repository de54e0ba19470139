package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

// Links implements attach.Links. It has no state and is safe for concurrent use.
type Links struct{ root string }

var _ attach.Links = (*Links)(nil)

// New makes a Links. Paths of namespaces are the host's; root is where this process
// sees the host's root, empty on the host itself.
func New(root string) *Links { return &Links{root} }

// Interfaces is attach.Links'.
func (l *Links) Interfaces(ctx context.Context, path string) ([]string, error) {
	h, err := l.handle(ctx, path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces in %s: %w", path, err)
	}
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Attrs().Name
	}
	return names, nil
}

// Facts is attach.Links'. Addresses and routes are sorted.
func (l *Links) Facts(ctx context.Context, path, ifName string) (attach.Facts, error) {
	h, err := l.handle(ctx, path)
	if err != nil {
		return attach.Facts{}, err
	}
	defer h.Close()
	link, err := find(h, path, ifName)
	if err != nil {
		return attach.Facts{}, err
	}
	attrs := link.Attrs()
	f := attach.Facts{MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0}
	addresses, err := addressesOf(h, link)
	if err != nil {
		return attach.Facts{}, fmt.Errorf("listing the addresses of %s in %s: %w", ifName, path, err)
	}
	f.Addresses = slices.DeleteFunc(addresses, func(a netip.Prefix) bool { return a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() })
	routes, err := unicastRoutes(h)
	if err != nil {
		return attach.Facts{}, fmt.Errorf("listing the routes in %s: %w", path, err)
	}
	for _, r := range routes {
		for _, hop := range hops(r) {
			if hop.LinkIndex == attrs.Index && r.Protocol != unix.RTPROT_KERNEL {
				f.Routes = append(f.Routes, attach.Route{Dst: destination(r), GW: address(hop.Gw)})
			}
		}
	}
	slices.SortFunc(f.Routes, func(a, b attach.Route) int {
		if c := a.Dst.Compare(b.Dst); c != 0 {
			return c
		}
		return a.GW.Compare(b.GW)
	})
	return f, nil
}

// handle opens a netlink socket inside the namespace at path.
func (l *Links) handle(ctx context.Context, path string) (*netlink.Handle, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ns, err := openIn(l.root, path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(vns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket in %s: %w", path, err)
	}
	return h, nil
}

// find returns an interface by name; the error wraps os.ErrNotExist where there is none.
func find(h *netlink.Handle, path, ifName string) (netlink.Link, error) {
	link, err := h.LinkByName(ifName)
	var none netlink.LinkNotFoundError
	switch {
	case errors.As(err, &none):
		return nil, fmt.Errorf("no interface %s in %s: %w", ifName, path, os.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("looking for interface %s in %s: %w", ifName, path, err)
	}
	return link, nil
}

// addressesOf lists the addresses of an interface, sorted.
func addressesOf(h *netlink.Handle, link netlink.Link) ([]netip.Prefix, error) {
	list, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for _, a := range list {
		all = append(all, prefix(a.IPNet))
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all, nil
}

// dump repeats a list that the kernel says was changed while it was read.
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range 10 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func prefix(n *net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address(n.IP), bits)
}

// address is the zero Addr for nil.
func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
