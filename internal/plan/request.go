package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
)

// Capability names (CNI conventions, "dynamic plugin specific fields").
const (
	capIPs        = "ips"
	capMAC        = "mac"
	capGUID       = "infinibandGUID"
	capPorts      = "portMappings"
	capBandwidth  = "bandwidth"
	capDeviceID   = "deviceID"
	capDeviceInfo = "CNIDeviceInfoFile"
)

// deviceInfoDir is where plugins put what they know of a device (device-info spec 1.1).
const deviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"

// maxDepth leaves room for what a configuration is put into on its way to the ledger:
// encoding/json writes 10000 levels, and so does v4.
const maxDepth = 1000

// request completes an attachment with everything its delegates are handed:
// configuration, arguments and capability arguments.
func (b *builder) request(a *Attachment, n network) {
	s := n.selected
	if s == nil {
		s = &netspec.Selection{}
	}
	a.Request = Request{MAC: s.MAC, InfinibandGUID: s.InfinibandGUID, IPs: s.IPs}
	a.Config = b.inject(n.config, s, a)
	if a.DeviceID != "" || a.Config.Declares(capDeviceInfo) {
		a.DeviceInfoFile = DeviceInfoFile(a.Network, b.call.ContainerID, a.Interface)
	}
	if a.Config.Depth() > maxDepth {
		b.problem(netspec.Problem{Element: a.Element, Network: a.Network, Wrong: fmt.Sprintf("the network's configuration, cni-args included, is nested deeper than %d levels", maxDepth), Right: "a flatter one"})
	}
	b.capabilityRule(a, s)
	for _, key := range s.Unknown {
		b.warn(netspec.Problem{Element: a.Element, Network: a.Network, Key: netspec.Shorten(key), Wrong: "no such key is known, so it does nothing", Right: "a key of multi-net-spec 4.1.2, or a name of your own with a dot in it"})
	}
	if a.Role == Primary {
		s = &netspec.Selection{} // it gets the runtime's values only (contract 1.7)
	}
	a.Args = b.args(s)
	a.CapabilityArgs = b.capabilityArgs(a, s)
}

// inject puts the device and the pod's cni-args into each plugin's configuration.
func (b *builder) inject(conf cniconf.Config, s *netspec.Selection, a *Attachment) cniconf.Config {
	cniArgs := maps.Clone(s.CNIArgs)
	if s.IPAMClaimReference != "" {
		if cniArgs == nil {
			cniArgs = map[string]json.RawMessage{}
		}
		cniArgs["ipam-claim-reference"] = cniconf.Quote(s.IPAMClaimReference)
	}
	if a.DeviceID == "" && len(cniArgs) == 0 {
		return conf
	}
	return conf.MapPlugins(func(o cniconf.Object) cniconf.Object {
		if a.DeviceID != "" {
			o = o.With("deviceID", cniconf.Quote(a.DeviceID)).With("pciBusID", cniconf.Quote(a.DeviceID))
		}
		if len(cniArgs) == 0 {
			return o
		}
		merged, err := mergeArgs(o, cniArgs)
		if err != nil {
			b.problem(netspec.Problem{Element: a.Element, Network: a.Network, Key: "args", Wrong: fmt.Sprintf("the network's configuration %v", err), Right: "an object, into which cni-args are merged"})
			return o
		}
		return merged
	})
}

// mergeArgs puts the pod's cni-args over args.cni of a plugin (multi-net-spec 4.1.2.1).
func mergeArgs(o cniconf.Object, cniArgs map[string]json.RawMessage) (cniconf.Object, error) {
	args, err := member(o, "args")
	if err != nil {
		return o, err
	}
	cni, err := member(args, "cni")
	if err != nil {
		return o, err
	}
	for _, key := range slices.Sorted(maps.Keys(cniArgs)) {
		cni = cni.With(key, cniArgs[key])
	}
	return o.With("args", args.With("cni", cni.Bytes()).Bytes()), nil
}

func member(o cniconf.Object, key string) (cniconf.Object, error) {
	raw, ok := o.Get(key)
	if !ok || string(raw) == "null" {
		return cniconf.Object{}, nil
	}
	m, err := cniconf.ParseObject(raw)
	if err != nil {
		return m, fmt.Errorf("has a key %q that %w", key, err)
	}
	return m, nil
}

// args is CNI_ARGS in v4's order: our own, the runtime's further pairs, and the
// deprecated MAC and IP (contract 1.7). No key comes twice.
func (b *builder) args(s *netspec.Selection) []Arg {
	own := []Arg{
		{"IgnoreUnknown", "true"},
		{"K8S_POD_NAMESPACE", b.pod.Namespace},
		{"K8S_POD_NAME", b.pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", b.call.ContainerID},
		{"K8S_POD_UID", b.pod.UID},
	}
	var requested []Arg
	if s.MAC != "" {
		requested = append(requested, Arg{"MAC", s.MAC})
	}
	if len(s.IPs) > 0 {
		requested = append(requested, Arg{"IP", strings.Join(s.IPs, ",")})
	}
	set := slices.Concat(own, requested)
	runtimes := slices.DeleteFunc(slices.Clone(b.call.Args), func(pair Arg) bool {
		return slices.ContainsFunc(set, func(ours Arg) bool { return ours[0] == pair[0] })
	})
	return slices.Concat(own, runtimes, requested)
}

// capabilityArgs are the runtime's values with the element's over them, cut down
// to what some plugin declares. The runtime's port mappings reach a secondary
// network's portmap too, as in v4 (contract 1.7).
func (b *builder) capabilityArgs(a *Attachment, s *netspec.Selection) map[string]json.RawMessage {
	all := maps.Clone(b.call.RuntimeConfig)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	set := func(name string, given bool, value any) {
		if given {
			all[name] = cniconf.Quote(value)
		}
	}
	set(capIPs, len(s.IPs) > 0, s.IPs)
	set(capMAC, s.MAC != "", s.MAC)
	set(capGUID, s.InfinibandGUID != "", s.InfinibandGUID)
	set(capPorts, len(s.PortMappings) > 0, s.PortMappings)
	set(capBandwidth, s.Bandwidth != nil, s.Bandwidth)
	set(capDeviceID, a.DeviceID != "", a.DeviceID)
	set(capDeviceInfo, a.DeviceInfoFile != "", a.DeviceInfoFile)
	maps.DeleteFunc(all, func(name string, value json.RawMessage) bool {
		return !a.Config.Declares(name) || string(value) == "null"
	})
	if len(all) == 0 {
		return nil
	}
	return all
}

// DeviceInfoFile is where the plugins of an attachment say what they know of its
// device, and where Multus v4 looks for it (contract 1.9).
func DeviceInfoFile(network, containerID, ifName string) string {
	name := fmt.Sprintf("%s-%s_%s", network, containerID, ifName)
	return deviceInfoDir + "/" + strings.ReplaceAll(name, "/", "-")
}

// capabilityRule: a request for ips, mac or an InfiniBand GUID needs a plugin that
// declares the capability (multi-net-spec 4.1.2.1), or it would be lost, as any
// request for the primary network is. v4 let it pass, so by default it is a warning.
func (b *builder) capabilityRule(a *Attachment, s *netspec.Selection) {
	type request struct {
		capability string
		made       bool
	}
	requests := []request{{capIPs, len(s.IPs) > 0}, {capMAC, s.MAC != ""}, {capGUID, s.InfinibandGUID != ""}}
	wrong := "no plugin of the network declares this capability, so the request may be lost"
	right := `a network whose plugins declare it in "capabilities", or no such request`
	if a.Role == Primary {
		requests = append(requests, request{capPorts, len(s.PortMappings) > 0}, request{capBandwidth, s.Bandwidth != nil})
		wrong = "the primary network gets the runtime's values only, so the request is lost"
		right = "the request for a network of the annotation " + netspec.AnnotationNetworks + ", or none"
	}
	for _, r := range requests {
		if !r.made || a.Role != Primary && a.Config.Declares(r.capability) {
			continue
		}
		p := netspec.Problem{Element: a.Element, Network: a.Network, Key: r.capability, Wrong: wrong, Right: right}
		if b.cfg.CapabilityCheck == "error" {
			b.problem(p)
			continue
		}
		b.warn(p)
	}
}

func (b *builder) warn(p netspec.Problem) {
	b.warnings = append(b.warnings, fmt.Sprintf("pod %s: %s", b.pod.Pod, p))
}
