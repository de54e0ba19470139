package plan

import (
	"encoding/json"
	"net/netip"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
)

// Version is the version of the Plan's JSON form.
const Version = 1

// Plan is what to attach, in order, to one sandbox. Its JSON form is stable: it
// crosses the socket and rests in the ledger.
type Plan struct {
	Version     int          `json:"version"`
	Pod         Pod          `json:"pod"`
	Attachments []Attachment `json:"attachments"` // the primary network first
	// Env is the overlay on the delegates' environment, as "NAME=value": what the node
	// takes from the daemon's environment by name (delegateEnv).
	Env []string `json:"env,omitempty"`
	// Warnings are findings that do not stop the pod, one line each.
	Warnings []string `json:"warnings,omitempty"`
}

// Pod is the identity of the pod that owns a sandbox.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// String is "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Role is the place of an attachment in the pod.
type Role string

// The roles.
const (
	Primary   Role = "primary"   // its result answers the runtime
	Default   Role = "default"   // one of defaultNetworks, or a further entry of delegates
	Secondary Role = "secondary" // selected by the pod
	Auxiliary Role = "auxiliary" // the node's chain of auxiliary plugins
	Plugged   Role = "plugged"   // attached to a running pod by /delegate, whose caller publishes it
)

// Attachment is one network of one pod, complete: nothing needs to be looked up
// to run it or to undo it.
type Attachment struct {
	Role Role `json:"role"`
	// Network is the name for people and for network-status: "namespace/name" of
	// the NetworkAttachmentDefinition, or the network's own name for a configuration
	// that comes from the node.
	Network string `json:"network"`
	// Element is the number of the selection element, from 1; 0 for none.
	Element   int            `json:"element,omitempty"`
	Interface string         `json:"interface"`
	Config    cniconf.Config `json:"config"`
	// Args are the pairs of CNI_ARGS, in order.
	Args []Arg `json:"args"`
	// CapabilityArgs are offered to each plugin, which gets those it declares.
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Routes         RouteWish                  `json:"routes,omitzero"`
	// DeviceID and Resource tell which device the attachment uses, for DeviceInfo
	// files and for records that Multus v4 can read.
	DeviceID string `json:"deviceID,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Claim tells which device of which resource claim it is, nil where it is none's.
	Claim *Claimed `json:"claim,omitempty"`
	// DeviceInfoFile is the file on the host in which the plugins say what they know of
	// the attachment's device (device-info specification 1.1); empty for none.
	DeviceInfoFile string `json:"deviceInfoFile,omitempty"`
	// Request is what the selection element asked for, kept for v4's records.
	Request Request `json:"request,omitzero"`
	// Selected is the selection element, where the daemon follows the annotation of
	// running pods (key hotplug): by it a changed element is told from the same one.
	Selected *netspec.Selection `json:"selected,omitempty"`
	// Optional says that the pod starts without the network where it cannot be attached.
	Optional bool `json:"optional,omitempty"`
}

// Request are the values of a selection element that v4's records name.
type Request struct {
	MAC            string   `json:"mac,omitempty"`
	InfinibandGUID string   `json:"infinibandGUID,omitempty"`
	IPs            []string `json:"ips,omitempty"`
}

// Claimed is a device that a resource claim (DRA) of the pod's namespace was given.
type Claimed struct {
	Claim  string `json:"claim"` // the claim's name
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

// ClaimStatus is what is known of a claim's device once it is attached.
type ClaimStatus struct {
	Claimed
	Interface string
	IPs       []string // with prefix lengths
	MAC       string
}

// Arg is one pair of CNI_ARGS.
type Arg [2]string

// Selects tells whether the plan holds networks that the pod selected.
func (p Plan) Selects() bool {
	for _, a := range p.Attachments {
		if a.Role == Secondary {
			return true
		}
	}
	return false
}

// RouteWish says what happens to the default routes of an attachment after all
// attachments are made.
type RouteWish struct {
	// Gateways become the pod's default routes, through this attachment: at most
	// one of each family.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// Own keeps the default routes that the attachment's own plugins made (an empty
	// default-route list).
	Own bool `json:"own,omitempty"`
	// DropV4 and DropV6 remove this attachment's default routes of the family,
	// because another attachment holds it.
	DropV4 bool `json:"dropV4,omitempty"`
	DropV6 bool `json:"dropV6,omitempty"`
}

// Call is what the runtime asked for.
type Call struct {
	ContainerID string
	NetNS       string
	Interface   string // CNI_IFNAME, the primary network's interface
	// Args are the pairs of the runtime's CNI_ARGS, in order.
	Args []Arg
	// RuntimeConfig is the runtimeConfig of the runtime's stdin, as it came.
	RuntimeConfig map[string]json.RawMessage
}

// Subject is the pod as the plan needs it.
type Subject struct {
	Pod
	Annotations map[string]string
}

// NAD is a NetworkAttachmentDefinition, trimmed.
type NAD struct {
	Ref         netspec.Ref
	Config      string // spec.config, as written
	Annotations map[string]string
}

// Source is where a configuration of the node came from, for messages.
type Source struct {
	// Place is a path or a NAD reference, as the finder sees it.
	Place string
	// Network is the name for network-status; empty for the configuration's own.
	Network string
	// Resource is the resourceName annotation of a NAD that stands for a node
	// network; empty for none.
	Resource string
}

// Located is a configuration with its source.
type Located struct {
	Source
	Config cniconf.Config
}
