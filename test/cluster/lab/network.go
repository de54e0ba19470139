package lab

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The cluster's addresses. They are in network namespaces of the machines only, so
// every cluster has the same.
const (
	controlPlaneIP = "10.99.0.1"
	apiServer      = "https://" + controlPlaneIP + ":6443"
	serviceRange   = "10.96.0.0/16"
	serviceIP      = "10.96.0.1"
)

// maxNodes is what the addresses suffice for.
const maxNodes = 9

func nodeIP(n int) string   { return fmt.Sprintf("10.99.0.1%d", n) }
func podRange(n int) string { return fmt.Sprintf("10.244.%d.0/24", n) }

// bridges are in the control plane's namespace; a node has eth0 on the first, which
// is the cluster's network, and eth1, without an address, on the second: for networks
// under test.
var bridges = [2]string{"br0", "br1"}

// plugControlPlane makes the bridges, and routes to the pods.
func plugControlPlane(pid int) error {
	h, err := handleAt(pid)
	if err != nil {
		return err
	}
	defer h.Close()
	for _, name := range bridges {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := errors.Join(h.LinkAdd(bridge), h.LinkSetUp(bridge)); err != nil {
			return fmt.Errorf("bridge %s: %w", name, err)
		}
	}
	return address(h, bridges[0], controlPlaneIP, podRoutes(0))
}

// plugNode connects the node n to the control plane.
func plugNode(control, pid, n int) error {
	outer, err := handleAt(control)
	if err != nil {
		return err
	}
	defer outer.Close()
	for i, bridge := range bridges {
		if err := cable(outer, bridge, pid, i, n); err != nil {
			return fmt.Errorf("eth%d: %w", i, err)
		}
	}
	h, err := handleAt(pid)
	if err != nil {
		return err
	}
	defer h.Close()
	eth1, err := h.LinkByName("eth1")
	if err != nil {
		return fmt.Errorf("eth1: %w", err)
	}
	if err := h.LinkSetUp(eth1); err != nil {
		return fmt.Errorf("eth1: %w", err)
	}
	routes := append(podRoutes(n), netlink.Route{Gw: net.ParseIP(controlPlaneIP)})
	return address(h, "eth0", nodeIP(n), routes)
}

// cable makes a pair of interfaces, one on the bridge and one that is the node's
// eth<i>, always with the same MAC address, as a card has.
func cable(outer *netlink.Handle, bridge string, pid, i, n int) error {
	master, err := outer.LinkByName(bridge)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("node%d-eth%d", n, i)
	attrs.MasterIndex = master.Attrs().Index
	// After a stop of the node the kernel takes a while to remove the old one.
	if old, err := outer.LinkByName(attrs.Name); err == nil {
		_ = outer.LinkDel(old) // it has gone meanwhile
	}
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: fmt.Sprintf("eth%d", i), PeerNamespace: netlink.NsPid(pid),
		PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 99, byte(i), byte(n)},
	}
	if err := outer.LinkAdd(veth); err != nil {
		return err
	}
	return outer.LinkSetUp(veth)
}

// podRoutes are those to the pods of all nodes but n.
func podRoutes(n int) []netlink.Route {
	var routes []netlink.Route
	for other := 1; other <= maxNodes; other++ {
		if _, pods, err := net.ParseCIDR(podRange(other)); err == nil && other != n {
			routes = append(routes, netlink.Route{Dst: pods, Gw: net.ParseIP(nodeIP(other))})
		}
	}
	return routes
}

// address sets up an interface with its address in the cluster's network and routes.
func address(h *netlink.Handle, name, ip string, routes []netlink.Route) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)}}
	if err := errors.Join(h.AddrAdd(link, addr), h.LinkSetUp(link)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, route := range routes {
		route.LinkIndex = link.Attrs().Index
		if err := h.RouteAdd(&route); err != nil {
			return fmt.Errorf("%s: route %v: %w", name, route, err)
		}
	}
	return nil
}

func handleAt(pid int) (*netlink.Handle, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("the network namespace of process %d: %w", pid, err)
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, fmt.Errorf("the network namespace of process %d: %w", pid, err)
	}
	return h, nil
}
