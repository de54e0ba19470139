package attach

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// Sandbox is the pod sandbox that an operation is about.
type Sandbox struct {
	ContainerID string `json:"containerID"`
	NetNS       string `json:"netns"` // path; may be empty or gone at DEL
}

// Runner runs the plugins of one attachment. Errors that come from a plugin are
// *types.Error with the plugin's own code, wrapped with the plugin's type.
type Runner interface {
	// Ready finds what keeps Add from running any plugin, and Del after it: a name that
	// CNI does not allow, a plugin that is not there. It runs nothing.
	Ready(a Attachment) error
	// Add runs the plugins in order and returns the last one's result, as JSON in
	// the configuration's CNI version.
	Add(ctx context.Context, a Attachment) (json.RawMessage, error)
	// Del runs the plugins in reverse order, all of them, with prevResult where
	// prev is not nil and the version has it. The errors of all come joined.
	Del(ctx context.Context, a Attachment, prev json.RawMessage) error
	// Check runs the plugins in order with prevResult. Versions before 0.4.0 and
	// networks with disableCheck succeed without running.
	Check(ctx context.Context, a Attachment, prev json.RawMessage) error
	// Status and GC exist from CNI 1.1.0 on; earlier versions succeed without running.
	Status(ctx context.Context, config cniconf.Config) error
	GC(ctx context.Context, config cniconf.Config, valid []types.GCAttachment) error
}

// Answer is an error of one call of a plugin, in reach of errors.As in the Runner's.
type Answer interface {
	error
	// AnsweredBy is the plugin that exited by itself and printed this error; empty where
	// it was ended, could not be run, or printed anything else.
	AnsweredBy() string
}

// Attachment is a planned attachment in its sandbox.
type Attachment struct {
	plan.Attachment
	Sandbox Sandbox
	// Env is the plan's overlay on the delegates' environment.
	Env []string
	// Lock is inherited by each delegate, so that the sandbox stays locked while an
	// orphan of a killed caller still runs. It may be nil.
	Lock Lock
}

// ErrNoNetNS says that a network namespace does not exist (any more), or that the
// path is not a network namespace.
var ErrNoNetNS = errors.New("no such network namespace")

// Links reads and changes the network namespace of a pod. Every method returns an
// error that wraps ErrNoNetNS where netns is empty, gone or not a network namespace;
// and os.ErrNotExist too, where it is gone.
type Links interface {
	// Interfaces lists the names of the interfaces in netns.
	Interfaces(ctx context.Context, netns string) ([]string, error)
	// Apply changes default routes: all removals, then all additions, as one step.
	// On error nothing is changed. undo puts the old routes back. A route that is
	// already as wished is left alone.
	Apply(ctx context.Context, netns string, change RouteChange) (undo func(context.Context) error, err error)
	// Facts reads one interface. Wraps os.ErrNotExist where there is none.
	Facts(ctx context.Context, netns, ifName string) (Facts, error)
	// Mend gives an interface back what it has lost, in the order of Lost's fields. It
	// changes nothing else, and what is there already is no error.
	Mend(ctx context.Context, netns, ifName string, lost Lost) error
}

// Lost is what an interface is to have again.
type Lost struct {
	Up        bool
	Addresses []netip.Prefix
	Routes    []Route // main table
}

// DeviceInfo keeps the files in which device plugins and CNI plugins say what they know
// of a device (device-info specification 1.1), on the host.
type DeviceInfo interface {
	// Begin empties an attachment's file, and puts into it what the device plugin says of
	// the device, if anything. The plugins may say more.
	Begin(file, resource, deviceID string) error
	// Read returns what the file says, nil for nothing.
	Read(file string) (json.RawMessage, error)
	// Remove removes the file. None is success.
	Remove(file string) error
}

// RouteChange is a set of changes to the default routes of a namespace's main table.
type RouteChange struct {
	Drop []DefaultRoute // Gateway is ignored: all default routes of family and interface
	Add  []DefaultRoute
}

// DefaultRoute is a default route through an interface.
type DefaultRoute struct {
	Interface string
	V6        bool
	Gateway   netip.Addr
}

// Facts is what can be seen of one interface in a namespace.
type Facts struct {
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu,omitempty"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // without link-local IPv6
	Routes    []Route        `json:"routes,omitempty"`    // main table, through this interface, without those of the kernel
}

// Route is a route through an interface.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"`
}

// State is how far a sandbox got.
type State string

// The states of a record.
const (
	Intent    State = "intent"    // ADD was about to run; any of its delegates may have
	Attached  State = "attached"  // ADD succeeded
	Detaching State = "detaching" // DEL ran and left something to do
)

// Origin is who wrote what a record was read from.
type Origin string

// The origins.
const (
	Ours   Origin = ""       // a record of this ledger
	FromV4 Origin = "v4"     // Multus v4's scratch file
	Cache  Origin = "libcni" // only libcni's result cache
)

// Record is what the ledger remembers of a sandbox.
type Record struct {
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	Sandbox Sandbox   `json:"sandbox"`
	Plan    plan.Plan `json:"plan"`
	// Outcomes has one element for each attachment of the plan, in its order.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	Origin   Origin    `json:"-"`
}

// result is what is true of an attachment now, nil where its ADD has not returned.
func (r Record) result(i int) json.RawMessage {
	if i >= len(r.Outcomes) {
		return nil
	}
	if routed := r.Outcomes[i].Routed; routed != nil {
		return routed
	}
	return r.Outcomes[i].Result
}

// Devices are the ids of the devices that a sandbox has.
func (r Record) Devices() []string {
	var all []string
	for i, a := range r.Plan.Attachments {
		if i < len(r.Outcomes) && r.Outcomes[i].Detached {
			continue
		}
		if a.DeviceID != "" {
			all = append(all, a.DeviceID)
		}
		for _, p := range a.Config.Plugins() {
			var id string
			raw, given := p.Object().Get("deviceID")
			if given && json.Unmarshal(raw, &id) == nil && id != "" && id != a.DeviceID {
				all = append(all, id)
			}
		}
	}
	return all
}

// Outcome is what became of one attachment.
type Outcome struct {
	// Result is the plugins' result, the prevResult of DEL. Nil before ADD returned.
	Result json.RawMessage `json:"result,omitempty"`
	// Routed is Result after default routes were moved; nil where none were.
	Routed json.RawMessage `json:"routed,omitempty"`
	// DeviceInfo is what is known of the device, nil for nothing.
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"`
	// Unseen says that the namespace did not show what Result says when ADD ended: a
	// userspace driver has the interface, or the result names more than there is.
	// CHECK does not compare it then.
	Unseen bool `json:"unseen,omitempty"`
	// Refused is the plugin that answered ADD with an error; empty where none did. DEL has
	// it clean up all the same, but does not fail where that plugin cannot.
	Refused string `json:"refused,omitempty"`
	// Displaced are the default routes that the attachment had until another one took
	// them over; they come back when that one goes.
	Displaced []Route `json:"displaced,omitempty"`
	// Detached says that DEL has given this attachment back.
	Detached bool `json:"detached,omitempty"`
	// Millis is how long the plugins took.
	Millis int64 `json:"millis,omitempty"`
}

// Errors of the ledger.
var (
	// ErrNoRecord says that nothing is recorded of a sandbox.
	ErrNoRecord = errors.New("no record of the sandbox")
	// ErrDamaged says that what was recorded cannot be read.
	ErrDamaged = errors.New("the record of the sandbox is damaged")
)

// Ledger is the durable record of what is attached where.
type Ledger interface {
	// Lock excludes other operations on the sandbox, also of other processes, and
	// waits for them until ctx ends. It takes the GC lock, shared, first.
	Lock(ctx context.Context, containerID string) (Lock, error)
	// Evict ends the processes that hold the sandbox's lock, this one excepted: the
	// orphans of a killed caller, once waiting for them has taken too long.
	Evict(containerID string) error
	// LockAll excludes every other operation (for GC).
	LockAll(ctx context.Context) (Lock, error)
	// Recorded tells whether the sandbox has a file of its own, ours or v4's, in whatever
	// state. It looks into no cache, for real nodes have hundreds of thousands of stale
	// results there.
	Recorded(containerID string) bool
	// Load reads the record: ours; else what v4 left, from libcni's cache first and
	// from its scratch file second; else ErrNoRecord. A damaged file gives ErrDamaged.
	Load(containerID string) (Record, error)
	// Save writes the record atomically; durable syncs it to the disk before it returns.
	Save(r Record, durable bool) error
	// Remove deletes the record. No record is success.
	Remove(containerID string) error
	// SetAside moves a damaged record out of the way and keeps it for people.
	SetAside(containerID string) error
	// Unfinished names sandboxes whose ADD or DEL ended long ago without being complete:
	// the caller was killed, or a delegate failed. Cheap: it looks at lock files alone.
	Unfinished() ([]string, error)
	// All reads the records of the sandboxes that have a file of their own, ours or v4's,
	// each as Load does. What cannot be read is an element; that nothing can be, an error.
	// Libcni's cache is looked through once at most.
	All() ([]Listed, error)
	// Results streams libcni's results, in no order, each as a record of one attachment.
	// There may be hundreds of thousands. An error is the last element.
	Results() iter.Seq2[Record, error]
	// Open reads the file of that name in the ledger, which names one sandbox's, or one
	// result in libcni's cache. Wraps ErrNoRecord where it is gone, or is no such file.
	Open(name string) (Record, error)
	// Forget removes what libcni's cache holds of the record's attachments.
	Forget(r Record) error
}

// Listed is what reading one of all records gave.
type Listed struct {
	ContainerID string
	Record      Record
	Err         error
}

// Lock is a held lock. Release never fails in a way that a caller could mend.
type Lock interface {
	Release()
	// FD is the descriptor that a child inherits to hold the lock too; 0 for none.
	FD() uintptr
}
