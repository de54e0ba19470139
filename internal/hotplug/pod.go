package hotplug

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// reconcile makes the networks of one pod those that it selects. again says that its
// turn comes once more, later.
func (r *Reconciler) reconcile(ctx context.Context, n name) (again bool) {
	pod, known := r.Cluster.Cached(n.namespace, n.name)
	if !known || pod.Deleting || pod.Static {
		r.forget(n)
		return false
	}
	state := r.state(n, pod.UID)
	rec, found, err := r.newest(pod.Pod)
	if err != nil {
		r.Log.Error("the ledger cannot be read", "pod", pod.String(), "error", err)
		return true
	}
	missed := r.miss(state, pod, !found || rec.State != attach.Attached)
	t := &turn{Reconciler: r, pod: pod, state: state, before: rec, rec: rec}
	t.status, _ = netspec.ParseStatus(pod.Annotations[netspec.AnnotationStatus])
	var problems []netspec.Problem
	t.selections, problems = netspec.ParseSelections(pod.Annotations[netspec.AnnotationNetworks], pod.Namespace)
	switch {
	case !found:
		// Others get a turn after the next look through the ledger.
		if r.sandboxes.searched(missed) {
			t.unfollowed(ctx, fmt.Sprintf("pod %s: its sandbox is not in this node's ledger, for Multus v4 made it, or it is being made anew: the networks of such a pod do not change", pod))
		}
		return false
	case rec.State != attach.Attached:
		return true // its ADD or DEL is under way
	case len(problems) > 0: // nothing is detached for a slip of the pen
		t.reject(ctx, lines(pod.Pod, problems))
		return false
	case unknown(rec) != "":
		t.unfollowed(ctx, fmt.Sprintf("pod %s: Multus v4 attached the network %s, and whether the pod selects it is not known here: make the pod anew", pod, unknown(rec)))
		return false
	}
	again = t.run(ctx, Diff(t.selections, rec))
	if t.gone { // there is a DEL, or a sandbox that nobody has told of
		r.miss(state, pod, true)
	}
	return again
}

// miss notes whether the pod's sandbox is missed, and returns since when.
func (r *Reconciler) miss(s *state, pod gather.Pod, missed bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.tried = pod.Annotations[netspec.AnnotationNetworks]
	says := s.tried + "\n" + pod.Annotations[netspec.AnnotationStatus]
	switch {
	case !missed:
		s.missed = time.Time{}
	case s.missed.IsZero() || s.says != says:
		s.missed = time.Now()
	}
	s.says = says
	return s.missed
}

// turn is one pod's turn.
type turn struct {
	*Reconciler
	pod         gather.Pod
	state       *state
	selections  []netspec.Selection
	status      []netspec.StatusEntry // as the pod says
	before, rec attach.Record         // at the turn's begin, and now
	failed      []string
	optional    int  // of the failed networks
	gone        bool // the sandbox was taken away meanwhile
}

func (t *turn) run(ctx context.Context, c Change) (again bool) {
	if t.Forbidden != "" && (len(c.Detach) > 0 || len(c.Attach) > 0) {
		t.reject(ctx, fmt.Sprintf("pod %s: a change of the networks of a running pod has no effect here: %s", t.pod, t.Forbidden))
		return false
	}
	if len(c.Detach) > 0 {
		switch current, err := t.current(ctx); {
		case err != nil:
			t.Log.Info("nothing is detached before the API has confirmed what the pod selects", "pod", t.pod.String(), "error", err)
			return true
		case !current:
			return true // the cache will follow
		}
	}
	stays := map[string]bool{}
	for _, a := range c.Detach {
		stays[a.Interface] = !t.detach(ctx, a)
	}
	for _, j := range c.Attach {
		if t.gone || ctx.Err() != nil {
			break
		}
		if !stays[j.Interface] {
			t.attach(ctx, j)
		}
	}
	if t.gone {
		return false
	}
	for _, p := range c.Wrong {
		t.fail(p.Element, fmt.Sprintf("pod %s: %s", t.pod, p), ReasonRejected)
	}
	t.mu.Lock()
	t.state.rejected = nil
	t.mu.Unlock()
	t.publish(ctx)
	t.report(ctx)
	return len(t.failed) > 0
}

// current asks the API whether the cache has the pod's annotation as it is: nothing is
// taken away on the word of a cache, which may be older than the pod's ADD.
func (t *turn) current(ctx context.Context) (bool, error) {
	live, err := t.Cluster.Live(ctx, t.pod.Namespace, t.pod.Name)
	if errors.Is(err, gather.ErrNotFound) {
		return false, nil
	}
	return err == nil && live.UID == t.pod.UID && !live.Deleting &&
		live.Annotations[netspec.AnnotationNetworks] == t.pod.Annotations[netspec.AnnotationNetworks], err
}

func (t *turn) detach(ctx context.Context, a plan.Attachment) (ok bool) {
	if t.gone {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, t.DelTimeout)
	defer cancel()
	rec, err := t.Engine.UnplugRecorded(ctx, t.rec.Sandbox.ContainerID, t.pod.Pod, a)
	t.now(rec)
	if err != nil {
		t.Count(Detach, Failed)
		t.fail(0, err.Error(), ReasonFailedRemoval)
		return false
	}
	if t.gone = len(rec.Plan.Attachments) == 0; t.gone {
		return true
	}
	t.Count(Detach, OK)
	t.Log.Info("detached", "pod", t.pod.String(), "network", a.Network, "interface", a.Interface)
	t.Cluster.Note(t.pod.Pod, ReasonRemoved, fmt.Sprintf("Remove %s from %s", a.Interface, a.Network))
	return true
}

func (t *turn) attach(ctx context.Context, j Joining) {
	ctx, cancel := context.WithTimeout(ctx, t.AddTimeout)
	defer cancel()
	rec, a, err := t.plug(ctx, j)
	t.now(rec)
	switch {
	case errors.Is(err, attach.ErrNoRecord) || errors.Is(err, attach.ErrNoNetNS):
		t.gone = true
	case err != nil:
		t.Count(Attach, Failed)
		t.fail(j.Element, err.Error(), ReasonFailedAdding)
	default:
		t.Count(Attach, OK)
		i := slices.IndexFunc(rec.Plan.Attachments, func(b plan.Attachment) bool { return b.Interface == a.Interface })
		addresses := netspec.Addresses(rec.Outcomes[i].Result)
		t.Log.Info("attached", "pod", t.pod.String(), "network", a.Network, "interface", a.Interface, "addresses", addresses)
		t.Cluster.Added(t.pod.Pod, a.Interface, addresses, a.Network)
	}
}

// plug plans and attaches one network.
func (t *turn) plug(ctx context.Context, j Joining) (attach.Record, plan.Attachment, error) {
	p, err := t.Plan(ctx, t.rec, j)
	if err != nil {
		return attach.Record{}, plan.Attachment{}, err
	}
	for _, w := range p.Warnings {
		t.Log.Warn(w)
	}
	giveBack, err := t.Admit(ctx)
	if err != nil {
		return attach.Record{}, plan.Attachment{}, err
	}
	defer giveBack()
	rec, err := t.Engine.PlugRecorded(ctx, t.rec.Sandbox.ContainerID, t.pod.Pod, p.Attachments[0])
	return rec, p.Attachments[0], err
}

// now keeps what the record has become; an empty one was not read.
func (t *turn) now(rec attach.Record) {
	if rec.Sandbox.ContainerID != "" {
		t.rec = rec
	}
}

// fail notes what one network lacks. Element 0 is one that the pod no longer selects.
func (t *turn) fail(element int, message, reason string) {
	t.failed = append(t.failed, message)
	if element > 0 {
		if optional, _ := t.selections[element-1].Optional(); optional {
			t.optional++
		}
	}
	t.Log.Error("the networks of a running pod differ from those that it selects", "pod", t.pod.String(), "reason", reason, "error", message)
	t.Cluster.Warn(t.pod.Pod, reason, message)
}

// reject says that nothing is done about an annotation: by an event once, and on the pod
// as long as it is so.
func (t *turn) reject(ctx context.Context, why string) {
	t.mu.Lock()
	annotation := t.pod.Annotations[netspec.AnnotationNetworks]
	told := t.state.rejected != nil && *t.state.rejected == annotation
	t.state.rejected = &annotation
	t.mu.Unlock()
	if !told {
		t.Log.Error("a change of a running pod's networks is rejected", "pod", t.pod.String(), "error", why)
		t.Cluster.Warn(t.pod.Pod, ReasonRejected, why)
	}
	t.failed = []string{why}
	t.report(ctx)
}

// accept ends what was said of an annotation that was rejected.
func (t *turn) accept(ctx context.Context) {
	t.mu.Lock()
	rejected := t.state.rejected != nil
	t.state.rejected = nil
	t.mu.Unlock()
	if rejected {
		t.report(ctx)
	}
}

// unfollowed rejects what a pod selects beyond its networks, where these cannot change. Its
// status tells which it has; one without a status has not begun.
func (t *turn) unfollowed(ctx context.Context, why string) {
	if len(t.status) == 0 {
		return
	}
	has := map[string]int{}
	for _, e := range t.status {
		has[e.Name]++
	}
	for _, s := range t.selections {
		if has[s.Ref().String()]--; has[s.Ref().String()] < 0 {
			t.reject(ctx, why)
			return
		}
	}
	t.accept(ctx)
}

// publish writes the network-status, where networks came or went, or where it names an
// interface that nobody knows any more: this process ended before it could write.
func (t *turn) publish(ctx context.Context) {
	mine := entriesOf(t.rec)
	others := slices.DeleteFunc(slices.Clone(t.status), func(e netspec.StatusEntry) bool {
		return names(mine, e.Interface) || names(entriesOf(t.before), e.Interface)
	})
	if kept := t.there(ctx, others); len(kept) < len(others) || netspec.FormatStatus(entriesOf(t.before)) != netspec.FormatStatus(mine) {
		t.Publish(t.before, t.rec, append(mine, kept...))
	}
}

// there are the entries that others wrote of interfaces that the sandbox has.
func (t *turn) there(ctx context.Context, others []netspec.StatusEntry) []netspec.StatusEntry {
	if len(others) == 0 {
		return nil
	}
	links, err := t.Interfaces(ctx, t.rec.Sandbox.NetNS)
	if err != nil {
		return others
	}
	return slices.DeleteFunc(slices.Clone(others), func(e netspec.StatusEntry) bool {
		return e.Interface != "" && !slices.Contains(links, e.Interface)
	})
}

func entriesOf(rec attach.Record) []netspec.StatusEntry {
	return slices.Concat(attach.StatusEntries(rec)...)
}

func names(entries []netspec.StatusEntry, ifName string) bool {
	return slices.ContainsFunc(entries, func(e netspec.StatusEntry) bool { return e.Interface == ifName })
}

// report says on the pod how it stands, where it does not say so yet.
func (t *turn) report(ctx context.Context) {
	differs := strings.Join(t.failed, "\n")
	t.mu.Lock()
	t.state.differences, t.state.optional = len(t.failed), t.optional
	said := t.state.known && t.state.told == differs
	t.mu.Unlock()
	if said {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := t.Cluster.ReportNetworks(ctx, t.pod.Pod, differs); err != nil {
		t.Log.Warn("the pod's condition cannot be written", "pod", t.pod.String(), "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.known, t.state.told = true, differs
}

func lines(pod plan.Pod, problems []netspec.Problem) string {
	return (&plan.Refusal{Pod: pod, Problems: problems}).Error()
}
