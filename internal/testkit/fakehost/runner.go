package fakehost

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
)

// network is what the fake delegates read of a configuration.
type network struct {
	// Subnets are prefixes, one address of each is leased. Without any, the network
	// makes no interface either.
	Subnets []netip.Prefix `json:"subnets"`
	// Routes come into the result as written. Default routes without a table are made.
	Routes []cniconf.Object `json:"routes"`
}

// cached is a file of libcni's result cache.
type cached struct {
	attachment attach.Attachment
	result     json.RawMessage
}

// Ready is attach.Runner's: what the script of "ready <network>" says.
func (p *Process) Ready(a attach.Attachment) error {
	return p.host.script(context.Background(), "ready "+a.Config.Name())
}

// Add is attach.Runner's.
func (p *Process) Add(ctx context.Context, a attach.Attachment) (json.RawMessage, error) {
	return p.delegate(ctx, Call{Verb: "ADD", Attachment: a})
}

// Del is attach.Runner's.
func (p *Process) Del(ctx context.Context, a attach.Attachment, prev json.RawMessage) error {
	_, err := p.delegate(ctx, Call{Verb: "DEL", Attachment: a, Prev: prev})
	return err
}

// Check is attach.Runner's.
func (p *Process) Check(ctx context.Context, a attach.Attachment, prev json.RawMessage) error {
	_, err := p.delegate(ctx, Call{Verb: "CHECK", Attachment: a, Prev: prev})
	return err
}

func (p *Process) delegate(ctx context.Context, c Call) (json.RawMessage, error) {
	crash, end := p.step(fmt.Sprintf("%s %s %s", c.Verb, c.Config.Name(), c.owner()))
	if crash == Orphan {
		ctx, free := c.Lock.(*lock).inherit(context.WithoutCancel(ctx))
		go func() {
			defer free()
			_, _ = p.host.run(ctx, c, false)
		}()
		p.die()
	}
	defer end()
	return p.host.run(ctx, c, crash == Halfway)
}

func (c Call) owner() owner { return owner{c.Sandbox.ContainerID, c.Interface} }

// run runs a delegate.
func (h *Host) run(ctx context.Context, c Call, halfway bool) (json.RawMessage, error) {
	h.begin(c)
	defer h.end(c)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var n network
	if err := json.Unmarshal(c.Config.Bytes(), &n); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "a fake network cannot read its configuration", err.Error())
	}
	var addresses []netip.Prefix
	var err error
	if c.Verb == "ADD" {
		addresses, err = h.lease(c, n)
	}
	if err == nil {
		err = h.script(ctx, c.Verb+" "+c.Config.Name())
	}
	switch {
	case err != nil || halfway:
		return nil, err
	case c.Verb == "ADD":
		return h.connect(c, n, addresses)
	case c.Verb == "DEL":
		h.disconnect(c)
	}
	return nil, nil
}

// begin notes a call, and what is wrong with it.
func (h *Host) begin(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := fmt.Sprintf("%s %s %s", c.Verb, c.Config.Name(), c.owner())
	if verb, busy := h.running[c.owner()]; busy {
		h.faults = append(h.faults, what+" while "+verb+" runs")
	}
	if l, ok := c.Lock.(*lock); !ok || h.locks[c.Sandbox.ContainerID] != l {
		h.faults = append(h.faults, what+" without the sandbox's lock")
	}
	h.running[c.owner()] = c.Verb
	h.peak = max(h.peak, len(h.running))
	h.calls = append(h.calls, c)
}

func (h *Host) end(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, c.owner())
}

// lease takes the lowest free addresses from the third of each subnet on.
func (h *Host) lease(c Call, n network) ([]netip.Prefix, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := c.Config.Name()
	if h.leases[name] == nil {
		h.leases[name] = map[lease]owner{}
	}
	for _, o := range h.leases[name] {
		if o == c.owner() {
			return nil, types.NewError(types.ErrInternal, "duplicate allocation is not allowed", o.String())
		}
	}
	var all []netip.Prefix
	for _, subnet := range n.Subnets {
		a := gateway(subnet).Next()
		for h.leases[name][a].containerID != "" {
			a = a.Next()
		}
		h.leases[name][a] = c.owner()
		all = append(all, netip.PrefixFrom(a, subnet.Bits()))
	}
	return all, nil
}

func gateway(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// connect makes the interface with its default routes, and the result.
func (h *Host) connect(c Call, n network, addresses []netip.Prefix) (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	result := cniconf.Object{}.With("cniVersion", cniconf.Quote(c.Config.CNIVersion()))
	if len(addresses) > 0 {
		ns, ok := h.namespaces[c.Sandbox.NetNS]
		if !ok {
			return nil, types.NewError(types.ErrInvalidNetNS, "no such network namespace", c.Sandbox.NetNS)
		}
		if _, exists := ns.links[c.Interface]; exists {
			return nil, types.NewError(types.ErrInternal, c.Interface+" already exists", "")
		}
		mac := macOf(addresses[0].Addr())
		ns.links[c.Interface] = attach.Facts{MAC: mac, Up: true, Addresses: addresses}
		ns.routes = append(ns.routes, defaultRoutes(c.Interface, n.Routes)...)
		result = result.With("interfaces", cniconf.Quote([]map[string]string{{"name": c.Interface, "mac": mac, "sandbox": c.Sandbox.NetNS}}))
	}
	var ips []map[string]any
	for i, a := range addresses {
		ips = append(ips, map[string]any{"interface": 0, "address": a.String(), "gateway": gateway(n.Subnets[i]).String()})
	}
	if len(ips) > 0 {
		result = result.With("ips", cniconf.Quote(ips))
	}
	if len(n.Routes) > 0 {
		result = result.With("routes", cniconf.Quote(n.Routes))
	}
	h.cache[c.Sandbox.ContainerID] = append(h.cache[c.Sandbox.ContainerID], cached{c.Attachment, result.Bytes()})
	return result.Bytes(), nil
}

func macOf(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", b[12], b[13], b[14], b[15])
}

func defaultRoutes(ifName string, routes []cniconf.Object) []attach.DefaultRoute {
	var all []attach.DefaultRoute
	for _, r := range routes {
		var route struct {
			Dst   netip.Prefix
			GW    netip.Addr
			Table *int
		}
		if json.Unmarshal(r.Bytes(), &route) == nil && route.Dst.Bits() == 0 && route.Table == nil {
			all = append(all, attach.DefaultRoute{Interface: ifName, V6: route.Dst.Addr().Is6(), Gateway: route.GW})
		}
	}
	return all
}

// disconnect takes the interface and the addresses back. What is not there is fine.
func (h *Host) disconnect(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ns, ok := h.namespaces[c.Sandbox.NetNS]; ok {
		ns.remove(c.Interface)
	}
	h.free(c.Config.Name(), func(o owner) bool { return o == c.owner() })
	h.forget(c.Sandbox.ContainerID, func(e cached) bool { return e.attachment.Interface == c.Interface })
}

func (h *Host) free(network string, whose func(owner) bool) {
	for a, o := range h.leases[network] {
		if whose(o) {
			delete(h.leases[network], a)
		}
	}
}

func (h *Host) forget(containerID string, which func(cached) bool) {
	left := slices.DeleteFunc(slices.Clone(h.cache[containerID]), which)
	if h.cache[containerID] = left; len(left) == 0 {
		delete(h.cache, containerID)
	}
}

// Status is attach.Runner's.
func (p *Process) Status(ctx context.Context, config cniconf.Config) error {
	_, end := p.step("STATUS " + config.Name())
	defer end()
	return p.host.script(ctx, "STATUS "+config.Name())
}

// GC is attach.Runner's: it frees the addresses of those that are not valid.
func (p *Process) GC(ctx context.Context, config cniconf.Config, valid []types.GCAttachment) error {
	var names []string
	for _, a := range valid {
		names = append(names, owner{a.ContainerID, a.IfName}.String())
	}
	_, end := p.step(fmt.Sprintf("GC %s [%s]", config.Name(), strings.Join(names, " ")))
	defer end()
	if err := p.host.script(ctx, "GC "+config.Name()); err != nil {
		return err
	}
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.exclusive {
		h.faults = append(h.faults, "GC "+config.Name()+" without the lock above all")
	}
	h.free(config.Name(), func(o owner) bool {
		return !slices.Contains(valid, types.GCAttachment{ContainerID: o.containerID, IfName: o.ifName})
	})
	return nil
}
