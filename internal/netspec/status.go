package netspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// EntryOptions is what a CNI result does not tell of an attachment.
type EntryOptions struct {
	// Default says that this is the pod's default network.
	Default bool
	// Gateways are those of the default routes that go through the attachment. Nil
	// reads them from the routes of the result.
	Gateways []netip.Addr
	// DeviceInfo is a DeviceInfo object (DeviceInfo specification 1.1.0), nil for none.
	DeviceInfo json.RawMessage
}

// Entries are the elements of the network-status annotation for one attachment: one
// for each interface of the result that has a sandbox; where none has, one with the
// requested interface name and all addresses (contract 1.5, multi-interface results).
// An empty result is one without interfaces. network is "namespace/name" or the name
// of a network of the node.
func Entries(network, ifName string, result json.RawMessage, o EntryOptions) ([]StatusEntry, error) {
	r, err := decode(result)
	if err != nil {
		return nil, fmt.Errorf("the result of network %s cannot be read: %w", network, err)
	}
	entries, place := interfaces(r, ifName)
	holder := -1 // the first entry that has an address with a gateway
	for _, ip := range r.IPs {
		i := owner(ip, len(entries), place)
		if i < 0 {
			continue
		}
		entries[i].IPs = append(entries[i].IPs, ip.Address.IP.String())
		if holder < 0 && ip.Gateway != nil {
			holder = i
		}
	}
	for i := range entries {
		entries[i].Name = network
		entries[i].DNS = DNS(r.DNS)
		entries[i].DeviceInfo = o.DeviceInfo
	}
	gateways := o.Gateways
	if gateways == nil {
		gateways = defaultGateways(r)
	}
	main := &entries[max(holder, 0)]
	main.Default = o.Default
	for _, gateway := range gateways {
		main.Gateway = append(main.Gateway, gateway.String())
	}
	return entries, nil
}

// Addresses are those of a result that are the pod's, with their prefix lengths; none of a
// result that cannot be read.
func Addresses(result json.RawMessage) []string {
	r, err := decode(result)
	if err != nil {
		return nil
	}
	entries, place := interfaces(r, "")
	var all []string
	for _, ip := range r.IPs {
		if owner(ip, len(entries), place) >= 0 {
			all = append(all, ip.Address.String())
		}
	}
	return all
}

func decode(result json.RawMessage) (*types100.Result, error) {
	if len(result) == 0 || string(result) == "null" {
		return &types100.Result{}, nil
	}
	decoded, err := create.CreateFromBytes(result)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(decoded)
}

// owner is the entry that an address belongs to: the last where its interface is not
// told, -1 for an address of the host's side.
func owner(ip *types100.IPConfig, entries int, place []int) int {
	if ip.Address.IP == nil {
		return -1
	}
	if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(place) {
		return place[*ip.Interface]
	}
	return entries - 1
}

// interfaces starts an entry for each interface in a sandbox. place maps the result's
// interface indexes to entries, -1 for the interfaces of the host.
func interfaces(r *types100.Result, ifName string) (entries []StatusEntry, place []int) {
	place = make([]int, len(r.Interfaces))
	for i, link := range r.Interfaces {
		place[i] = -1
		if link.Sandbox != "" {
			place[i] = len(entries)
			entries = append(entries, StatusEntry{Interface: link.Name, MAC: link.Mac, MTU: link.Mtu})
		}
	}
	if len(entries) > 0 {
		return entries, place
	}
	entry := StatusEntry{Interface: ifName}
	for _, link := range r.Interfaces {
		if link.Name == ifName { // the pod's interface, by a plugin that leaves sandbox out
			entry.MAC, entry.MTU = link.Mac, link.Mtu
		}
	}
	return []StatusEntry{entry}, nil // no place: every address goes to the one entry
}

// defaultGateways are the gateways of the default routes of a result. A default route
// that names none goes through the gateway of an address of its family.
func defaultGateways(r *types100.Result) (gateways []netip.Addr) {
	for _, route := range r.Routes {
		if !isDefault(route) {
			continue
		}
		gateway := route.GW
		for _, ip := range r.IPs {
			if gateway == nil && isV4(ip.Gateway) == isV4(route.Dst.IP) {
				gateway = ip.Gateway
			}
		}
		if a, ok := netip.AddrFromSlice(gateway); ok && !slices.Contains(gateways, a.Unmap()) {
			gateways = append(gateways, a.Unmap())
		}
	}
	return gateways
}

// isDefault tells a default route of the main table (254).
func isDefault(route *types.Route) bool {
	ones, _ := route.Dst.Mask.Size()
	return route.Dst.IP.IsUnspecified() && ones == 0 && (route.Table == nil || *route.Table == 254)
}

func isV4(ip net.IP) bool { return ip.To4() != nil }

// FormatStatus is the text of the network-status annotation, in the layout of v4.
// Device information that is not JSON is left out.
func FormatStatus(entries []StatusEntry) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "    ")
	texts := make([]string, len(entries))
	for i, e := range entries {
		if !json.Valid(e.DeviceInfo) {
			e.DeviceInfo = nil
		}
		b.Reset()
		_ = enc.Encode(e) // texts and valid JSON always marshal
		texts[i] = strings.TrimSuffix(b.String(), "\n")
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// ParseStatus reads the network-status annotation; an empty text has no entries. The
// "<nil>" that v4 wrote for a route without gateway is dropped.
func ParseStatus(annotation string) ([]StatusEntry, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	var entries []StatusEntry
	if err := json.Unmarshal([]byte(annotation), &entries); err != nil {
		return nil, fmt.Errorf("the network-status annotation is not a list of status entries: %w", err)
	}
	for i := range entries {
		entries[i].Gateway = slices.DeleteFunc(entries[i].Gateway, func(g string) bool { return g == "<nil>" })
	}
	return entries, nil
}
