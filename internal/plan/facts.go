package plan

import (
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
)

// Needs is what has to be fetched before a pod's plan can be built.
type Needs struct {
	// NADs are the definitions to look up. One that does not exist is simply absent
	// from the facts; Build knows which of them must exist.
	NADs []netspec.Ref
	// ConfDir asks for the files of the folder confDir.
	ConfDir bool
	// Paths are values of clusterNetwork and defaultNetworks that name a file or a folder.
	Paths []string
}

// Facts are the answers. Everything in it is data; Build judges it.
type Facts struct {
	NADs    map[netspec.Ref]NAD
	ConfDir []File
	Paths   map[string]PathFacts
	Devices Devices
}

// Devices are those that were allocated to the pod.
type Devices struct {
	// ByResource are the ids by resource name, in the order in which attachments take them.
	ByResource map[string][]string
	// ByClaim are the ids of resource claims by the claim's name, as Multus v4.3 named
	// them: another name for devices that may have one in ByResource too.
	ByClaim map[string][]string
	// Claimed tells of an id which device of which resource claim it is, where that is known.
	Claimed map[string]Claimed
	// Detail says, for messages, who answered and with what.
	Detail string
}

// of returns the ids that a resource name stands for.
func (d Devices) of(resource string) (ids []string, byClaim bool) {
	if ids, ok := d.ByResource[resource]; ok {
		return ids, false
	}
	return d.ByClaim[resource], true
}

// File is a configuration file of the node.
type File struct {
	Path    string
	Content []byte
	// Missing says why there is no content; empty where there is.
	Missing string
}

// PathFacts is what a path-valued setting led to.
type PathFacts struct {
	File File // the folder itself, with the reason, where it leads to no file
	// Chained are the files of the folder that is named like the network, beside the
	// file of a conflist. Auxiliary are those of the folder auxiliaryCNIChainName.
	Chained, Auxiliary []File
}

// Depends tells whether a pod's networks depend on anything but the node's own
// configuration: it selects networks, replaces its primary network, or gets
// default networks.
func Depends(cfg *config.Config, pod Subject) bool {
	return strings.TrimSpace(pod.Annotations[netspec.AnnotationNetworks]) != "" ||
		strings.TrimSpace(pod.Annotations[netspec.AnnotationDefaultNetwork]) != "" ||
		defaultNetworksApply(cfg, pod)
}

// defaultNetworksApply: default networks go with clusterNetwork, to pods outside
// the system namespaces (contract 1.3c).
func defaultNetworksApply(cfg *config.Config, pod Subject) bool {
	return cfg.ClusterNetwork != "" && len(cfg.DefaultNetworks) > 0 && !slices.Contains(cfg.SystemNamespaces, pod.Namespace)
}

// NeedsOf lists what the pod's plan needs, each thing once. A mistake in one
// annotation does not stop the other: what can be fetched is, so that Build finds as
// much as it can of what is wrong.
func NeedsOf(cfg *config.Config, pod Subject) Needs {
	var n Needs
	look := func(ref netspec.Ref) {
		if !slices.Contains(n.NADs, ref) {
			n.NADs = append(n.NADs, ref)
		}
	}
	for _, value := range nodeNetworks(cfg, pod) {
		if isPath(value) {
			n.Paths = append(n.Paths, value)
			continue
		}
		look(netspec.Ref{Namespace: cfg.MultusNamespace, Name: value})
		n.ConfDir = true
	}
	selections, _ := netspec.ParseSelections(pod.Annotations[netspec.AnnotationNetworks], pod.Namespace)
	for _, s := range selections {
		if s.Named() {
			look(s.Ref())
		}
	}
	if text := pod.Annotations[netspec.AnnotationDefaultNetwork]; strings.TrimSpace(text) != "" {
		if s, problems := netspec.ParseDefaultNetwork(text, cfg.MultusNamespace); len(problems) == 0 {
			look(s.Ref())
		}
	}
	return n
}

// Resources are the names of the resources that definitions take devices of: known only
// from the definitions.
func Resources(nads map[netspec.Ref]NAD) []string {
	var all []string
	for _, nad := range nads {
		if name := nad.Annotations[netspec.AnnotationResourceName]; name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// NeedsFiles tells whether some definition leaves its configuration to a file in
// confDir.
func NeedsFiles(nads map[netspec.Ref]NAD) bool {
	for _, nad := range nads {
		if strings.TrimSpace(nad.Config) == "" {
			return true
		}
	}
	return false
}

// nodeNetworks are the networks that the node's settings give the pod by name.
func nodeNetworks(cfg *config.Config, pod Subject) []string {
	if cfg.ClusterNetwork == "" {
		return nil
	}
	if defaultNetworksApply(cfg, pod) {
		return append([]string{cfg.ClusterNetwork}, cfg.DefaultNetworks...)
	}
	return []string{cfg.ClusterNetwork}
}

// isPath: a value with a slash is always a path, never a NAD (contract 1.3c).
func isPath(value string) bool { return strings.Contains(value, "/") }
