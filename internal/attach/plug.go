package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/plan"
)

// Plug attaches one network more to a sandbox. The record gets it, so that the
// sandbox's DEL gives it back. An attachment that is recorded already, of the same
// network under the same interface, answers with its recorded result; one whose
// ADD did not finish is undone and made anew.
func (e *Engine) Plug(ctx context.Context, sb Sandbox, pod plan.Pod, a plan.Attachment) (json.RawMessage, error) {
	lock, err := e.lock(ctx, sb.ContainerID, pod)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	rec, err := e.recordOf(sb, pod)
	if err != nil {
		return nil, err
	}
	_, result, err := e.plugOnce(ctx, rec, a, lock)
	return result, err
}

// PlugRecorded is Plug for a sandbox that must be recorded: one that is not was deleted
// meanwhile, and the error wraps ErrNoRecord. The record returned is what is true then,
// of a failure too where it could be read.
func (e *Engine) PlugRecorded(ctx context.Context, containerID string, pod plan.Pod, a plan.Attachment) (Record, error) {
	lock, err := e.lock(ctx, containerID, pod)
	if err != nil {
		return Record{}, err
	}
	defer lock.Release()
	rec, err := e.recorded(containerID, pod)
	if err != nil {
		return rec, err
	}
	rec, _, err = e.plugOnce(ctx, rec, a, lock)
	return rec, err
}

// plugOnce attaches a network unless it is attached.
func (e *Engine) plugOnce(ctx context.Context, rec Record, a plan.Attachment, lock Lock) (Record, json.RawMessage, error) {
	pod := rec.Plan.Pod
	if rec.State != Attached {
		return rec, nil, tryLater(pod, errors.New("the sandbox is not attached: its ADD or its DEL has not finished"))
	}
	i, err := rec.find(a, "ADD")
	switch {
	case err != nil:
		return rec, nil, err
	case i >= 0 && rec.Outcomes[i].Result != nil:
		return rec, rec.Outcomes[i].Result, nil
	case i >= 0 && rec.Origin != Ours:
		return rec, nil, rec.failure(i, "ADD", errors.New("Multus v4 attached it and left no result"))
	case i >= 0:
		if rec, err = e.unplug(ctx, rec, i, lock); err != nil {
			return rec, nil, tryLater(pod, fmt.Errorf("an earlier, unfinished ADD cannot be undone: %w", err))
		}
	}
	if err := e.startable(ctx, rec.Sandbox, &plan.Plan{Pod: pod, Attachments: []plan.Attachment{a}}); err != nil {
		return rec, nil, err
	}
	return e.plug(ctx, rec, a, lock)
}

// plug records the intent, attaches, moves default routes and records the outcome.
func (e *Engine) plug(ctx context.Context, before Record, a plan.Attachment, lock Lock) (Record, json.RawMessage, error) {
	rec := before.clone()
	rec.Plan.Attachments = append(rec.Plan.Attachments, a)
	rec.Outcomes = append(rec.Outcomes, Outcome{})
	plan.ShareRoutes(rec.Plan.Attachments)
	if err := e.Ledger.Save(rec, true); err != nil {
		return before, nil, fmt.Errorf("pod %s: nothing was attached, because the intent cannot be recorded: %w", rec.Plan.Pod, err)
	}
	last := len(rec.Outcomes) - 1
	begin := time.Now()
	result, info, err := e.runAdd(ctx, rec.attachment(last, lock))
	rec.Outcomes[last].Refused = refused(err)
	if err == nil {
		rec.Outcomes[last] = Outcome{Result: result, DeviceInfo: info, Millis: time.Since(begin).Milliseconds()}
		err = e.reroute(ctx, rec)
	}
	if err == nil {
		rec.Outcomes[last].Unseen = e.unseen(ctx, rec, last)
		err = e.Ledger.Save(rec, false)
	}
	if err == nil {
		return rec, result, nil
	}
	failure := rec.failure(last, "ADD", err)
	undo, cancel := e.undoContext(ctx)
	defer cancel()
	rec, err = e.unplug(undo, rec, last, lock)
	return rec, nil, errors.Join(failure, err)
}

// Unplug gives one network of a sandbox back. The recorded configuration counts; a
// network that is not recorded is deleted with the configuration given, unless the
// interface is another network's.
func (e *Engine) Unplug(ctx context.Context, sb Sandbox, pod plan.Pod, a plan.Attachment) error {
	lock, err := e.lock(ctx, sb.ContainerID, pod)
	if err != nil {
		return err
	}
	defer lock.Release()
	rec, err := e.recordOf(sb, pod)
	if err != nil {
		return err
	}
	i, err := rec.find(a, "DEL")
	if err != nil {
		return err
	}
	if i >= 0 {
		_, err = e.unplug(ctx, rec, i, lock)
		return err
	}
	err = e.runDel(ctx, Attachment{Attachment: a, Sandbox: sb, Lock: lock}, nil)
	if err != nil && !alreadyGone(err) {
		return &Failure{Pod: pod, Network: a.Network, Interface: a.Interface, Verb: "DEL", Err: err}
	}
	return nil
}

// UnplugRecorded gives a recorded attachment back, as it is recorded. It succeeds where
// the attachment, or the whole sandbox, is gone. The record returned is what is true
// then; its zero value says that there is none.
func (e *Engine) UnplugRecorded(ctx context.Context, containerID string, pod plan.Pod, a plan.Attachment) (Record, error) {
	lock, err := e.lock(ctx, containerID, pod)
	if err != nil {
		return Record{}, err
	}
	defer lock.Release()
	rec, err := e.recorded(containerID, pod)
	if errors.Is(err, ErrNoRecord) {
		return Record{}, nil
	}
	if err != nil {
		return rec, err
	}
	i, err := rec.find(a, "DEL")
	if err != nil || i < 0 {
		return rec, err
	}
	return e.unplug(ctx, rec, i, lock)
}

// unplug deletes one attachment, takes it out of the record and puts back the default
// routes that it took over. A plugin that refused the attachment and refuses to clean
// up, for the same reason, does not keep it in the record: what has failed may be tried
// with another configuration.
func (e *Engine) unplug(ctx context.Context, before Record, i int, lock Lock) (Record, error) {
	err := e.runDel(ctx, before.attachment(i, lock), before.Outcomes[i].Result)
	switch {
	case err == nil || alreadyGone(err):
	case answeredBy(err, before.Outcomes[i].Refused):
		e.Log.Error("a network that refused to attach refuses to clean up too: what it may hold is lost", "pod", before.Plan.Pod.String(), "error", err)
	default:
		return before, before.failure(i, "DEL", err)
	}
	rec := before.clone()
	rec.Plan.Attachments = slices.Delete(rec.Plan.Attachments, i, i+1)
	rec.Outcomes = slices.Delete(rec.Outcomes, i, i+1)
	if len(rec.Plan.Attachments) == 0 {
		return rec, e.Ledger.Remove(rec.Sandbox.ContainerID)
	}
	plan.ShareRoutes(rec.Plan.Attachments)
	if err := e.reroute(ctx, rec); err != nil && !errors.Is(err, ErrNoNetNS) {
		return before, before.failure(i, "DEL", err)
	}
	return rec, e.Ledger.Save(rec, false)
}

// clone is a record whose attachments and outcomes can be changed.
func (r Record) clone() Record {
	r.Plan.Attachments, r.Outcomes = slices.Clone(r.Plan.Attachments), slices.Clone(r.Outcomes)
	return r
}

// CheckOne compares one attachment of a sandbox with what is recorded of it.
func (e *Engine) CheckOne(ctx context.Context, sb Sandbox, a plan.Attachment) error {
	lock, err := e.Ledger.Lock(ctx, sb.ContainerID)
	if err != nil {
		return err
	}
	defer lock.Release()
	rec, err := e.Ledger.Load(sb.ContainerID)
	if err != nil {
		return err
	}
	i, err := rec.find(a, "CHECK")
	if err != nil {
		return err
	}
	if i < 0 {
		return &Failure{Pod: rec.Plan.Pod, Network: a.Network, Interface: a.Interface, Verb: "CHECK", Err: ErrNoRecord}
	}
	rec.Sandbox.NetNS = sb.NetNS
	if err := e.checkOne(ctx, rec, i, lock); err != nil {
		return rec.failure(i, "CHECK", err)
	}
	return nil
}

// recordOf loads a sandbox's record, or begins one for a sandbox that has none: it
// was attached before Multus came. A damaged record is an error: its sandbox is
// alive, and its other attachments must not be forgotten.
func (e *Engine) recordOf(sb Sandbox, pod plan.Pod) (Record, error) {
	rec, err := e.Ledger.Load(sb.ContainerID)
	if errors.Is(err, ErrNoRecord) {
		return Record{State: Attached, Created: e.now(), Sandbox: sb, Plan: plan.Plan{Version: plan.Version, Pod: pod}}, nil
	}
	if err != nil {
		return rec, fmt.Errorf("pod %s: %w", pod, err)
	}
	rec.Sandbox.NetNS, rec.Plan.Pod = sb.NetNS, cmp.Or(rec.Plan.Pod, pod)
	return rec.padded(), nil
}

// recorded loads the record of a sandbox that must have one.
func (e *Engine) recorded(containerID string, pod plan.Pod) (Record, error) {
	rec, err := e.Ledger.Load(containerID)
	if err != nil {
		return rec, fmt.Errorf("pod %s: %w", pod, err)
	}
	return rec.padded(), nil
}

// padded has an outcome for each attachment; v4's records may lack some.
func (r Record) padded() Record {
	if missing := len(r.Plan.Attachments) - len(r.Outcomes); missing > 0 {
		r.Outcomes = append(slices.Clone(r.Outcomes), make([]Outcome, missing)...)
	}
	return r
}

// find returns the place of the attachment of the same network under the same
// interface, -1 for none. It fails where the interface is another network's.
func (r Record) find(a plan.Attachment, verb string) (int, error) {
	i := slices.IndexFunc(r.Plan.Attachments, func(b plan.Attachment) bool { return a.Interface == b.Interface })
	if i < 0 || r.Plan.Attachments[i].Config.Name() == a.Config.Name() {
		return i, nil
	}
	return i, &Failure{
		Pod: r.Plan.Pod, Network: a.Network, Interface: a.Interface, Verb: verb,
		Err: fmt.Errorf("the interface belongs to the network %s", r.Plan.Attachments[i].Network),
	}
}
