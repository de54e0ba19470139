package audit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Settled is for how long the API must go on saying that a pod runs, with the addresses
// that it had in a sandbox that is gone, before that is believed: after a reboot it says
// so until the kubelet has looked.
const Settled = time.Minute

// Life is how a pod runs, read live.
type Life struct {
	Phase Phase
	IPs   []netip.Addr
	// Controlled says that a controller makes the pod anew when it is gone.
	Controlled bool
}

// Phase is where a pod is in its life, as far as its networks are concerned.
type Phase int

// The phases.
const (
	Waiting Phase = iota // not running yet
	Running              // in a sandbox with a network namespace of its own
	Exempt               // it never will be again: it has ended, or has the node's network
)

// Selects tells whether a pod asks for networks.
func Selects(p gather.Pod) bool {
	return p.Annotations[netspec.AnnotationNetworks] != "" || p.Annotations[netspec.AnnotationDefaultNetwork] != ""
}

// Known tells whether a trace is of this pod's sandbox, and that sandbox may be there:
// an ADD or a DEL that has not ended counts.
func Known(p gather.Pod, t Trace) bool { return Of(p, t) && !t.Gone }

// Of tells whether a trace names this pod.
func Of(p gather.Pod, t Trace) bool {
	return t.Plan.Pod.Name != "" && p.String() == t.Plan.Pod.String() && p.Is(t.Plan.Pod)
}

// Stray tells whether a pod that selects networks, and of which no trace is Known, runs
// without them. dead are its other traces; waited is for how long no trace has been known.
//
// The pod's own network-status is evidence too: that of its present sandbox names its
// present address. But it outlives the sandbox, and so does what the API says of the pod,
// so with the same address as before only time tells.
func Stray(p gather.Pod, l Life, dead []Trace, waited time.Duration) bool {
	if l.Phase != Running || len(l.IPs) == 0 || p.Deleting {
		return false
	}
	before := statusAddresses(p)
	for _, t := range dead {
		before = append(before, primaryAddresses(t.Record)...)
	}
	if slices.ContainsFunc(l.IPs, func(ip netip.Addr) bool { return slices.Contains(before, ip) }) {
		return len(dead) > 0 && waited >= Settled
	}
	return true
}

func statusAddresses(p gather.Pod) []netip.Addr {
	entries, _ := netspec.ParseStatus(p.Annotations[netspec.AnnotationStatus]) // one that cannot be read claims nothing
	if len(entries) == 1 && p.Annotations[netspec.AnnotationNetworks] != "" {
		return nil // it is TrueStatus: the pod was found to be a stray before a restart
	}
	var all []netip.Addr
	for _, e := range entries {
		for _, text := range e.IPs {
			if ip, err := netip.ParseAddr(text); err == nil && e.Default {
				all = append(all, ip)
			}
		}
	}
	return all
}

func primaryAddresses(r attach.Record) []netip.Addr {
	var all []netip.Addr
	for i, a := range r.Plan.Attachments {
		if i >= len(r.Outcomes) || a.Role != plan.Primary && r.Origin == attach.Ours {
			continue
		}
		for _, text := range netspec.Addresses(r.Outcomes[i].Result) {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p.Addr())
			}
		}
	}
	return all
}

// TrueStatus is the network-status of a stray: the primary network alone, which is what
// the runtime has given it.
func TrueStatus(l Life, primary, ifName string) []netspec.StatusEntry {
	entry := netspec.StatusEntry{Name: primary, Interface: ifName, Default: true}
	for _, ip := range l.IPs {
		entry.IPs = append(entry.IPs, ip.String())
	}
	return []netspec.StatusEntry{entry}
}

// Late are the attachments of a plan that a running pod can get: networks that it selects,
// on interfaces of their own. Devices are allocated to containers before they start, and
// to move a default route would cut what runs. refused names the others.
func Late(p plan.Plan) (late []plan.Attachment, refused []string) {
	for _, a := range p.Attachments {
		routes := a.Routes
		switch {
		case a.Role != plan.Secondary && a.Role != plan.Default:
		case a.DeviceID != "" || a.Resource != "":
			refused = append(refused, a.Network+" (it has a device)")
		case routes.Own || len(routes.Gateways) > 0:
			refused = append(refused, a.Network+" (it has the default route)")
		default:
			late = append(late, a)
		}
	}
	return late, refused
}
