package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

// Apply is attach.Links'. The whole change is computed from the routes that are
// there, and then made. Where an added route would have the metric of a default
// route through another interface, it takes that one's place: the kernel would
// refuse it (IPv4) or share the traffic between both (IPv6). Other default routes
// that are not in Drop stay. A multipath route loses the hops that are dropped.
//
// What is put back has metric, scope, source, protocol, hops, order and the other
// attributes that it had. The remaining lifetime of a route from an IPv6 router
// advertisement is the exception: it comes back without one.
func (l *Links) Apply(ctx context.Context, path string, change attach.RouteChange) (func(context.Context) error, error) {
	h, err := l.handle(ctx, path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	drop, err := dropped(h, path, change.Drop)
	if err != nil {
		return nil, err
	}
	wishes, err := wished(h, path, change.Add)
	if err != nil {
		return nil, err
	}
	before, err := unicastRoutes(h)
	if err != nil {
		return nil, fmt.Errorf("listing the routes in %s: %w", path, err)
	}
	before = slices.DeleteFunc(before, func(r netlink.Route) bool { return !isDefault(r) })
	done := &journal{before: before}
	if err := done.run(h, compile(before, drop, wishes)); err != nil {
		return nil, errors.Join(fmt.Errorf("changing the default routes in %s: %w", path, err), done.undo(h))
	}
	return func(ctx context.Context) error {
		h, err := l.handle(ctx, path)
		if err != nil {
			return fmt.Errorf("restoring the default routes: %w", err)
		}
		defer h.Close()
		return done.undo(h)
	}, nil
}

// through is a family and an interface.
type through struct {
	family int // netlink.FAMILY_V4 or FAMILY_V6
	index  int
}

// wish is a default route that shall be there.
type wish struct {
	through
	gateway   netip.Addr
	name      string
	addresses []netip.Prefix // of the interface
}

func family(v6 bool) int {
	if v6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// dropped resolves the interfaces. One that is not there has no routes to drop.
func dropped(h *netlink.Handle, path string, routes []attach.DefaultRoute) (map[through]bool, error) {
	drop := map[through]bool{}
	for _, d := range routes {
		link, err := find(h, path, d.Interface)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		drop[through{family(d.V6), link.Attrs().Index}] = true
	}
	return drop, nil
}

// wished resolves the interfaces and holds each gateway against its interface.
func wished(h *netlink.Handle, path string, routes []attach.DefaultRoute) ([]wish, error) {
	var wishes []wish
	for _, d := range routes {
		link, err := find(h, path, d.Interface)
		if err != nil {
			return nil, err
		}
		w := wish{through: through{family(d.V6), link.Attrs().Index}, gateway: d.Gateway.Unmap(), name: d.Interface}
		if w.addresses, err = addressesOf(h, link); err != nil {
			return nil, fmt.Errorf("listing the addresses of %s in %s: %w", d.Interface, path, err)
		}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("the default route in %s %w", path, err)
		}
		wishes = append(wishes, w)
	}
	return wishes, nil
}

// check errors read as a predicate of "the default route".
func (w wish) check() error {
	kind := "IPv4"
	if w.family == netlink.FAMILY_V6 {
		kind = "IPv6"
	}
	if !w.gateway.IsValid() || w.gateway.Is6() != (w.family == netlink.FAMILY_V6) {
		return fmt.Errorf("through %s wants an %s gateway, and %s is none", w.name, kind, w.gateway)
	}
	// A link-local address reaches link-local gateways only.
	usable := func(a netip.Prefix) bool {
		return a.Addr().Is6() == w.gateway.Is6() && (a.Addr().Is4() || !a.Addr().IsLinkLocalUnicast() || w.gateway.IsLinkLocalUnicast())
	}
	if !slices.ContainsFunc(w.addresses, usable) {
		return fmt.Errorf("via %s cannot go through %s, which has no %s address (it has %s)", w.gateway, w.name, kind, w.list())
	}
	return nil
}

func (w wish) list() string {
	if len(w.addresses) == 0 {
		return "no addresses"
	}
	var all []string
	for _, a := range w.addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}

// steps are removals and additions, in the order in which they are made.
type steps struct {
	remove []int // of the routes before
	rest   []netlink.Route
	add    []wish
}

// compile computes what to do.
func compile(before []netlink.Route, drop map[through]bool, wishes []wish) steps {
	after := make([]netlink.Route, len(before)) // no hops: removed
	for i, r := range before {
		after[i] = prune(r, drop, wishes)
	}
	var s steps
	for _, w := range wishes {
		if slices.ContainsFunc(after, func(r netlink.Route) bool { h := hops(r); return len(h) == 1 && w.is(r.Family, h[0]) }) {
			continue
		}
		s.add = append(s.add, w)
		for i, r := range after {
			if r.Family == w.family && r.Tos == 0 && r.Priority == w.metric() {
				after[i] = netlink.Route{}
			}
		}
	}
	for i, r := range before {
		if len(hops(after[i])) == len(hops(r)) {
			continue
		}
		s.remove = append(s.remove, i)
		if len(hops(after[i])) > 0 {
			s.rest = append(s.rest, after[i])
		}
	}
	return s
}

// prune takes the dropped hops out of a route, except for those that are wished.
func prune(r netlink.Route, drop map[through]bool, wishes []wish) netlink.Route {
	all := hops(r)
	rest := slices.DeleteFunc(slices.Clone(all), func(hop *netlink.NexthopInfo) bool {
		return drop[through{r.Family, hop.LinkIndex}] && !slices.ContainsFunc(wishes, func(w wish) bool { return w.is(r.Family, hop) })
	})
	switch {
	case len(rest) == len(all):
		return r
	case len(rest) == 0:
		return netlink.Route{}
	}
	r.MultiPath = rest
	if len(rest) == 1 {
		hop := rest[0]
		r.MultiPath, r.LinkIndex, r.Gw, r.Flags, r.Encap, r.Via = nil, hop.LinkIndex, hop.Gw, hop.Flags, hop.Encap, hop.Via
	}
	return r
}

func (w wish) is(family int, hop *netlink.NexthopInfo) bool {
	return w.through == through{family, hop.LinkIndex} && w.gateway == address(hop.Gw)
}

// metric is what the kernel gives a route that is added without one.
func (w wish) metric() int {
	if w.family == netlink.FAMILY_V6 {
		return 1024
	}
	return 0
}

// hops are the next hops of a route, be it multipath or not; none for the zero Route.
func hops(r netlink.Route) []*netlink.NexthopInfo {
	switch {
	case len(r.MultiPath) > 0:
		return r.MultiPath
	case r.LinkIndex == 0:
		return nil
	}
	return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Flags: r.Flags, Encap: r.Encap, Via: r.Via}}
}

// isDefault: netlink gives the destination of a default route as 0.0.0.0/0 or
// ::/0, and gave none in earlier versions (contract 1.20.1).
func isDefault(r netlink.Route) bool { return destination(r).Bits() == 0 }

func destination(r netlink.Route) netip.Prefix {
	switch {
	case r.Dst != nil:
		return prefix(r.Dst)
	case r.Family == netlink.FAMILY_V6:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// unicastRoutes lists the routes of the main table, both families, in the kernel's
// order. Flags are those that may be set again, not the state of the link.
func unicastRoutes(h *netlink.Handle) ([]netlink.Route, error) {
	var all []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
		if err != nil {
			return nil, err
		}
		all = append(all, routes...)
	}
	all = slices.DeleteFunc(all, func(r netlink.Route) bool { return r.Type != unix.RTN_UNICAST })
	for i := range all {
		all[i].Flags &= int(netlink.FLAG_ONLINK)
		for _, hop := range all[i].MultiPath {
			hop.Flags &= int(netlink.FLAG_ONLINK)
		}
	}
	return all, nil
}

// journal is what was done to the default routes of a namespace.
type journal struct {
	before  []netlink.Route
	removed []int
	added   []netlink.Route
}

func (j *journal) run(h *netlink.Handle, s steps) error {
	for _, i := range s.remove {
		// A route that has gone by itself meanwhile is not ours to restore.
		switch err := h.RouteDel(&j.before[i]); {
		case err == nil:
			j.removed = append(j.removed, i)
		case !errors.Is(err, unix.ESRCH):
			return fmt.Errorf("removing %s: %w", describe(j.before[i]), err)
		}
	}
	for _, r := range s.rest {
		if err := h.RouteAppend(&r); err != nil {
			return fmt.Errorf("adding %s: %w", describe(r), err)
		}
		j.added = append(j.added, r)
	}
	for _, w := range s.add {
		r := netlink.Route{Family: w.family, Dst: everything(w.family), LinkIndex: w.index, Gw: w.gateway.AsSlice()}
		err := h.RouteAdd(&r)
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) { // the kernel's answers for IPv4 and IPv6
			return fmt.Errorf("gateway %s is not on a network of %s (which has %s): %w", w.gateway, w.name, w.list(), err)
		}
		if err != nil {
			return fmt.Errorf("adding a default route via %s through %s: %w", w.gateway, w.name, err)
		}
		j.added = append(j.added, r)
	}
	return nil
}

// undo takes back what was added and puts back what was removed. The kernel keeps
// the order of default routes of one metric; so where some of them were removed, all
// of these are set anew.
func (j *journal) undo(h *netlink.Handle) error {
	var errs []error
	note := func(doing string, r netlink.Route, err error, fine error) {
		if err != nil && !errors.Is(err, fine) {
			errs = append(errs, fmt.Errorf("restoring the default routes: %s %s: %w", doing, describe(r), err))
		}
	}
	for _, r := range slices.Backward(j.added) {
		note("removing", r, h.RouteDel(&r), unix.ESRCH)
	}
	again := map[[3]int]bool{}
	group := func(r netlink.Route) [3]int { return [3]int{r.Family, r.Tos, r.Priority} }
	for _, i := range j.removed {
		again[group(j.before[i])] = true
	}
	for i, r := range j.before {
		if again[group(r)] && !slices.Contains(j.removed, i) {
			note("removing", r, h.RouteDel(&r), unix.ESRCH)
		}
	}
	for _, r := range j.before {
		if again[group(r)] {
			note("adding", r, h.RouteAppend(&r), unix.EEXIST)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	j.removed, j.added = nil, nil // nothing is left for a second undo
	return nil
}

func everything(family int) *net.IPNet {
	if family == netlink.FAMILY_V6 {
		return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
}

func describe(r netlink.Route) string {
	var via []string
	for _, hop := range hops(r) {
		via = append(via, fmt.Sprintf("%s through interface %d", hop.Gw, hop.LinkIndex))
	}
	return fmt.Sprintf("the default route via %s, metric %d", strings.Join(via, " and "), r.Priority)
}
