package fakehost

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/multus-thick/multus/internal/attach"
)

// namespace is a network namespace.
type namespace struct {
	links  map[string]attach.Facts // without routes
	routes []attach.DefaultRoute   // in the order in which they were made
}

func (n *namespace) lines() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(n.links)) {
		lines = append(lines, fmt.Sprintf("  %s %s %v", name, n.links[name].MAC, n.links[name].Addresses))
	}
	for _, r := range n.routes {
		lines = append(lines, fmt.Sprintf("  default via %s dev %s", r.Gateway, r.Interface))
	}
	return lines
}

func (n *namespace) remove(ifName string) {
	delete(n.links, ifName)
	n.routes = slices.DeleteFunc(n.routes, func(r attach.DefaultRoute) bool { return r.Interface == ifName })
}

// AddNetNS makes a network namespace without interfaces but lo.
func (h *Host) AddNetNS(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.namespaces[path] = &namespace{links: map[string]attach.Facts{}}
}

// RemoveNetNS removes a network namespace and its interfaces. Leases stay.
func (h *Host) RemoveNetNS(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.namespaces, path)
}

// SetLink changes, makes or, with nil, removes an interface behind everybody's back.
func (h *Host) SetLink(path, ifName string, facts *attach.Facts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if facts == nil {
		h.namespaces[path].remove(ifName)
		return
	}
	h.namespaces[path].links[ifName] = *facts
}

// DropRoutes removes the default routes of a family from a namespace behind everybody's back.
func (h *Host) DropRoutes(path string, v6 bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ns := h.namespaces[path]
	ns.routes = slices.DeleteFunc(ns.routes, func(r attach.DefaultRoute) bool { return r.V6 == v6 })
}

// gone is the error of a namespace that is not there.
type gone string

func (path gone) Error() string { return fmt.Sprintf("%q: %v", string(path), attach.ErrNoNetNS) }

func (gone) Unwrap() []error { return []error{attach.ErrNoNetNS, fs.ErrNotExist} }

// in runs do on a namespace. The host is locked.
func (h *Host) in(path string, do func(*namespace) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ns, ok := h.namespaces[path]
	if !ok {
		return gone(path)
	}
	return do(ns)
}

// Interfaces is attach.Links'.
func (p *Process) Interfaces(ctx context.Context, netns string) (names []string, err error) {
	_, end := p.step("interfaces")
	defer end()
	if err := p.host.script(ctx, "interfaces"); err != nil {
		return nil, err
	}
	return names, p.host.in(netns, func(n *namespace) error {
		names = append([]string{"lo"}, slices.Sorted(maps.Keys(n.links))...)
		return nil
	})
}

// Apply is attach.Links'.
func (p *Process) Apply(ctx context.Context, netns string, change attach.RouteChange) (func(context.Context) error, error) {
	_, end := p.step(fmt.Sprintf("routes -%s +%s", describe(change.Drop), describe(change.Add)))
	defer end()
	if err := p.host.script(ctx, "routes"); err != nil {
		return nil, err
	}
	var before []attach.DefaultRoute
	err := p.host.in(netns, func(n *namespace) error {
		before = slices.Clone(n.routes)
		return n.change(change)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, end := p.step("unroute")
		defer end()
		if err := p.host.script(ctx, "unroute"); err != nil {
			return err
		}
		return p.host.in(netns, func(n *namespace) error { n.routes = before; return ctx.Err() })
	}, nil
}

func (n *namespace) change(change attach.RouteChange) error {
	for _, r := range change.Add {
		family := func(a netip.Prefix) bool { return a.Addr().Is6() == r.V6 }
		if !slices.ContainsFunc(n.links[r.Interface].Addresses, family) {
			return fmt.Errorf("the default route via %s cannot go through %s, which has no address of its family", r.Gateway, r.Interface)
		}
	}
	n.routes = slices.DeleteFunc(n.routes, func(r attach.DefaultRoute) bool {
		same := func(d attach.DefaultRoute) bool { return d.Interface == r.Interface && d.V6 == r.V6 }
		return slices.ContainsFunc(change.Drop, same) && !slices.Contains(change.Add, r)
	})
	for _, r := range change.Add {
		if !slices.Contains(n.routes, r) {
			n.routes = append(n.routes, r)
		}
	}
	return nil
}

func describe(routes []attach.DefaultRoute) []string {
	all := []string{}
	for _, r := range routes {
		family := "v4"
		if r.V6 {
			family = "v6"
		}
		line := r.Interface + "/" + family
		if r.Gateway.IsValid() {
			line += "/" + r.Gateway.String()
		}
		all = append(all, line)
	}
	return all
}

// Facts is attach.Links'.
func (p *Process) Facts(ctx context.Context, netns, ifName string) (facts attach.Facts, err error) {
	_, end := p.step("facts")
	defer end()
	if err := p.host.script(ctx, "facts"); err != nil {
		return attach.Facts{}, err
	}
	return facts, p.host.in(netns, func(n *namespace) error {
		var ok bool
		if facts, ok = n.links[ifName]; !ok {
			return fmt.Errorf("no interface %s in %s: %w", ifName, netns, os.ErrNotExist)
		}
		for _, r := range n.routes {
			dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.V6 {
				dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			if r.Interface == ifName {
				facts.Routes = append(facts.Routes, attach.Route{Dst: dst, GW: r.Gateway})
			}
		}
		return nil
	})
}

// Mend is attach.Links'. Routes other than default ones are not kept here.
func (p *Process) Mend(ctx context.Context, netns, ifName string, lost attach.Lost) error {
	_, end := p.step(fmt.Sprintf("mend %s %v", ifName, lost))
	defer end()
	if err := p.host.script(ctx, "mend"); err != nil {
		return err
	}
	return p.host.in(netns, func(n *namespace) error {
		facts := n.links[ifName]
		facts.Up = facts.Up || lost.Up
		facts.Addresses = append(slices.Clone(facts.Addresses), lost.Addresses...)
		n.links[ifName] = facts
		for _, r := range lost.Routes {
			n.routes = append(n.routes, attach.DefaultRoute{Interface: ifName, V6: r.Dst.Addr().Is6(), Gateway: r.GW})
		}
		return nil
	})
}
