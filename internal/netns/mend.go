package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/hostroot"
)

// Mend is attach.Links'. A route that stands in the way of a lost one, such as a default
// route through another interface, stays, and is an error.
func (l *Links) Mend(ctx context.Context, path, ifName string, lost attach.Lost) error {
	h, err := l.handle(ctx, path)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := find(h, path, ifName)
	if err != nil {
		return err
	}
	if lost.Up {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("bringing %s up in %s: %w", ifName, path, err)
		}
	}
	for _, a := range lost.Addresses {
		err := h.AddrAdd(link, &netlink.Addr{IPNet: network(a)})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the address %s to %s in %s: %w", a, ifName, path, err)
		}
	}
	for _, r := range lost.Routes {
		if err := addRoute(h, link, r); err != nil {
			return fmt.Errorf("adding the route to %s through %s in %s: %w", r.Dst, ifName, path, err)
		}
	}
	return nil
}

// addRoute adds a route unless it is there.
func addRoute(h *netlink.Handle, link netlink.Link, r attach.Route) error {
	route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: network(r.Dst), Gw: r.GW.AsSlice(), Family: family(r.Dst.Addr().Is6())}
	if !r.GW.IsValid() && route.Family == netlink.FAMILY_V4 {
		route.Scope = netlink.SCOPE_LINK
	}
	err := h.RouteAdd(&route)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	have, listErr := unicastRoutes(h)
	if listErr != nil {
		return listErr
	}
	for _, other := range have {
		for _, hop := range hops(other) {
			if hop.LinkIndex == route.LinkIndex && destination(other) == r.Dst && address(hop.Gw) == r.GW {
				return nil
			}
		}
	}
	return fmt.Errorf("another route to it is there: %w", err)
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Gone tells that the namespace at a path of the host, whose root is at root, is gone for
// certain. Root is empty on the host itself; from a container the namespace's folder must be
// to be seen, and processes have other numbers.
func Gone(root, path string) bool {
	if path == "" {
		return false
	}
	if _, err := hostroot.Stat(root, path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if root == "" {
		return true
	}
	_, err := hostroot.Stat(root, filepath.Dir(path))
	return err == nil && !strings.HasPrefix(path, "/proc/")
}
