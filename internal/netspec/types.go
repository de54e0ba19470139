package netspec

import (
	"bytes"
	"encoding/json"
	"net/netip"
)

// Annotation keys (multi-net-spec sections 3.2, 4 and 5; contract of Multus v4).
const (
	// AnnotationNetworks on a pod selects its secondary networks.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationStatus on a pod tells what was attached.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
	// AnnotationDefaultNetwork on a pod replaces its primary network.
	AnnotationDefaultNetwork = "v1.multus-cni.io/default-network"
	// AnnotationResourceName on a NetworkAttachmentDefinition names the
	// device resource from which each attachment takes one device.
	AnnotationResourceName = "k8s.v1.cni.cncf.io/resourceName"
	// AnnotationConfigSource on a pod is "api" unless the kubelet read the pod
	// from a file or URL (a static pod).
	AnnotationConfigSource = "kubernetes.io/config.source"
)

// Ref names a NetworkAttachmentDefinition.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "namespace/name".
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Selection is one network selection element (multi-net-spec 4.1.2).
type Selection struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"` // never empty after parsing
	// Interface is the requested interface name in the pod; empty for none.
	Interface string `json:"interface,omitempty"`
	// IPs are addresses with or without prefix length, as the user wrote them.
	IPs            []string `json:"ips,omitempty"`
	MAC            string   `json:"mac,omitempty"`
	InfinibandGUID string   `json:"infiniband-guid,omitempty"`
	// PortMappings and Bandwidth are well-typed but kept as written.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	Bandwidth    *Bandwidth    `json:"bandwidth,omitempty"`
	DeviceID     string        `json:"deviceID,omitempty"`
	// CNIArgs are raw values: numbers keep their digits.
	CNIArgs map[string]json.RawMessage `json:"cni-args,omitempty"`
	// DefaultRoute is nil where the key is absent. An empty list has a meaning of
	// its own: this attachment keeps its default routes and the others lose theirs.
	DefaultRoute       *[]netip.Addr `json:"default-route,omitempty"`
	IPAMClaimReference string        `json:"ipam-claim-reference,omitempty"`
	// Extensions are the keys with a dot (reverse-DNS names), as written.
	Extensions map[string]json.RawMessage `json:"-"`
	// Unknown are the keys that nobody knows, sorted: misspelt ones, most likely.
	Unknown []string `json:"-"`
}

// Ref is the network that the element selects.
func (s Selection) Ref() Ref { return Ref{s.Namespace, s.Name} }

// ExtensionOptional on a selection element is true where the pod may start without the
// network, which is then attached late.
const ExtensionOptional = "io.multus.optional"

// Optional reads ExtensionOptional; ok is false where it is neither true nor false.
func (s Selection) Optional() (optional, ok bool) {
	raw, given := s.Extensions[ExtensionOptional]
	switch {
	case !given || string(raw) == "false" || string(raw) == "null":
		return false, true
	default:
		return string(raw) == "true", string(raw) == "true"
	}
}

// AsksTheSame tells whether two elements ask for the same of the same network. What the
// interface is called is another question.
func (s Selection) AsksTheSame(other Selection) bool {
	s.Interface, other.Interface = "", ""
	mine, err := json.Marshal(s)
	theirs, otherErr := json.Marshal(other)
	return err == nil && otherErr == nil && bytes.Equal(mine, theirs)
}

// PortMapping is an entry of the portMappings capability (CNI conventions).
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol,omitempty"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Bandwidth is the bandwidth capability (CNI conventions): rates in bits a
// second, bursts in bits.
type Bandwidth struct {
	IngressRate  int `json:"ingressRate"`
	IngressBurst int `json:"ingressBurst"`
	EgressRate   int `json:"egressRate"`
	EgressBurst  int `json:"egressBurst"`
}

// Problem is one thing wrong in what a user wrote, located.
type Problem struct {
	// Element is the number of the selection element, from 1; 0 for the whole.
	Element int
	// Network is "namespace/name" where it is known.
	Network string
	// Key is the annotation, configuration key or element key.
	Key string
	// Wrong says what is wrong, Right what would be right.
	Wrong, Right string
}

// StatusEntry is one element of the network-status annotation (multi-net-spec 5).
// The JSON form is that of Multus v4.
type StatusEntry struct {
	Name       string          `json:"name"`
	Interface  string          `json:"interface,omitempty"`
	IPs        []string        `json:"ips,omitempty"`
	MAC        string          `json:"mac,omitempty"`
	MTU        int             `json:"mtu,omitempty"`
	Default    bool            `json:"default,omitempty"`
	DNS        DNS             `json:"dns"`
	DeviceInfo json.RawMessage `json:"device-info,omitempty"`
	Gateway    []string        `json:"gateway,omitempty"`
}

// DNS is the dns member of a status entry.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}
