package api

import (
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types"
)

// Paths of the daemon's HTTP API on the unix socket.
const (
	PathPlan     = "/v1/plan"
	PathReport   = "/v1/report"
	PathCNI      = "/cni"      // Multus v4's shim
	PathDelegate = "/delegate" // the dynamic-networks-controller
	PathHealthz  = "/healthz"
	PathReadyz   = "/readyz"
	PathMetrics  = "/metrics"
)

// SocketName is the file name of the socket in its folder.
const SocketName = "multus.sock"

// OrphansName is the file, beside the socket, in which a daemon that may not act on the host
// names files of the ledger that nobody owns any more, one a line.
const OrphansName = "orphans"

// Protocol is the version of the /v1 messages. A daemon takes older ones; a newer
// one gets an error that says so.
const Protocol = 1

// PlanRequest asks for the plan of one ADD. Only what the plan needs crosses the
// socket: no environment, and the configuration without prevResult and runtimeConfig.
type PlanRequest struct {
	Protocol int `json:"protocol"`
	// Plain says that the caller can attach the pod without an answer, and is not
	// admitted through the queue.
	Plain       bool   `json:"plain,omitempty"`
	ContainerID string `json:"containerID"`
	NetNS       string `json:"netns"`
	Interface   string `json:"interface"`
	// Args is CNI_ARGS as the runtime gave it.
	Args string `json:"args"`
	// Config is the runtime's stdin without prevResult and runtimeConfig.
	Config json.RawMessage `json:"config"`
	// RuntimeConfig is the runtime's runtimeConfig, pod annotations included.
	RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig,omitempty"`
	// Ledger identifies the folder in which the caller keeps its records.
	Ledger Place `json:"ledger"`
}

// Place identifies a folder of the node across mount namespaces.
type Place struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	BootID string `json:"bootID"`
}

// PlanResponse carries the plan. Plan is opaque to clients other than our own
// plugin; it holds attachments in order with their whole configuration.
type PlanResponse struct {
	Plan json.RawMessage `json:"plan"`
}

// Report tells the daemon how an operation ended. A report of an attached sandbox
// is answered when the pod's network-status is written, or after the daemon's
// waiting time (5 s), or at once with NoWait.
type Report struct {
	Protocol    int    `json:"protocol"`
	Verb        string `json:"verb"` // ADD, DEL, CHECK or GC
	ContainerID string `json:"containerID"`
	NetNS       string `json:"netns,omitempty"`
	Pod         Pod    `json:"pod"`
	// Plain and NoWait: the caller does not wait for the status.
	Plain  bool `json:"plain,omitempty"`
	NoWait bool `json:"noWait,omitempty"`
	// Error is nil for success.
	Error       *types.Error `json:"error,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
	Millis      int64        `json:"millis"`
}

// Pod is the identity of the pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Attachment is one reported attachment.
type Attachment struct {
	Network   string   `json:"network"`
	Interface string   `json:"interface"`
	Plugins   []string `json:"plugins"` // plugin types in the order of ADD
	// Status are the attachment's elements of the network-status annotation.
	Status []json.RawMessage `json:"status,omitempty"`
	// Addresses are the pod's, with their prefix lengths, for events.
	Addresses []string `json:"addresses,omitempty"`
	Millis    int64    `json:"millis"`
	Failed    bool     `json:"failed,omitempty"`
}

// ReportResponse answers a report.
type ReportResponse struct {
	// Published says that the network-status is on the pod now.
	Published bool `json:"published"`
}

// Request is the body of /cni and /delegate, as Multus v4's clients send it.
type Request struct {
	Env                 map[string]string            `json:"env,omitempty"`
	Config              []byte                       `json:"config,omitempty"`
	InterfaceAttributes *DelegateInterfaceAttributes `json:"interfaceAttributes,omitempty"`
}

// DelegateInterfaceAttributes are the attributes of a /delegate request.
type DelegateInterfaceAttributes struct {
	IPRequest  []string                `json:"ips,omitempty"`
	MacRequest string                  `json:"mac,omitempty"`
	CNIArgs    *map[string]interface{} `json:"cni-args,omitempty"`
}

// Response is the answer of /cni and /delegate. Result is null for verbs without one.
type Response struct {
	Result json.RawMessage
}
