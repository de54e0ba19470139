package audit

import (
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
)

// Grace is how old what is left of a sandbox must be before anything is concluded from it.
const Grace = 10 * time.Minute

// Trace is a file that tells of a sandbox: a record of ours, a file of Multus v4, or a
// result of libcni.
type Trace struct {
	attach.Record
	// Gone says that the sandbox's network namespace is gone for certain.
	Gone bool
}

// Evidence is what traces are held against.
type Evidence struct {
	// At is a moment before Pods and Runtime were read.
	At time.Time
	// Pods are all pods of the node, read from the API, not from a cache.
	Pods Pods
	// Runtime are the sandboxes that the runtime knows, whatever their state; empty where it
	// is not asked, or is not that of this node's pods: it knows the daemon's, for one.
	Runtime map[string]bool
	// Busy are the devices of sandboxes that are not orphans.
	Busy map[string]bool
}

// Pods are pods by "namespace/name".
type Pods map[string]gather.Pod

// ByName arranges pods.
func ByName(all []gather.Pod) Pods {
	pods := Pods{}
	for _, p := range all {
		pods[p.String()] = p
	}
	return pods
}

// Owned tells whether the pod that a trace names exists. A trace that names none is
// owned by nobody that the API knows.
func (p Pods) Owned(t Trace) bool {
	pod, exists := p[t.Plan.Pod.String()]
	return exists && pod.Is(t.Plan.Pod)
}

// Suspect tells from a trace alone that it may be an orphan's at a time: it is older than
// Grace, and no namespace is there. One that Multus v4 or libcni left, and that does not
// tell the namespace, says nothing.
func Suspect(at time.Time, t Trace) bool {
	switch {
	case at.Sub(t.Created) < Grace:
		return false
	case t.Sandbox.NetNS == "":
		return t.Origin == attach.Ours
	}
	return t.Gone
}

// Orphan tells that nothing owns a sandbox any more. Its pod and its namespace are gone,
// since longer than Grace; where the trace does not tell the pod, as v4's files, the
// runtime's word takes the API's place. A device that another sandbox may have by now is
// a doubt, for to give it back would take it from there.
func (e Evidence) Orphan(t Trace) bool {
	switch {
	case !Suspect(e.At, t):
		return false
	case slices.ContainsFunc(t.Devices(), func(id string) bool { return t.Origin != attach.Ours || e.Busy[id] }):
		return false
	case t.Plan.Pod.Name == "" || t.Sandbox.NetNS == "":
		return len(e.Runtime) > 0 && !e.Runtime[t.Sandbox.ContainerID] && !e.Pods.Owned(t)
	}
	return !e.Pods.Owned(t)
}
