package attach

import (
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
	if rec.State != Attached {
		return nil, tryLater(pod, errors.New("the sandbox is not attached: its ADD or its DEL has not finished"))
	}
	i, err := rec.find(a, "ADD")
	switch {
	case err != nil:
		return nil, err
	case i >= 0 && rec.Outcomes[i].Result != nil:
		return rec.Outcomes[i].Result, nil
	case i >= 0 && rec.Origin != Ours:
		return nil, rec.failure(i, "ADD", errors.New("Multus v4 attached it and left no result"))
	case i >= 0:
		if rec, err = e.unplug(ctx, rec, i, lock); err != nil {
			return nil, tryLater(pod, fmt.Errorf("an earlier, unfinished ADD cannot be undone: %w", err))
		}
	}
	if err := e.startable(ctx, sb, &plan.Plan{Pod: pod, Attachments: []plan.Attachment{a}}); err != nil {
		return nil, err
	}
	return e.plug(ctx, rec, a, lock)
}

// plug records the intent, attaches and records the outcome.
func (e *Engine) plug(ctx context.Context, rec Record, a plan.Attachment, lock Lock) (json.RawMessage, error) {
	rec.Plan.Attachments = append(rec.Plan.Attachments, a)
	rec.Outcomes = append(rec.Outcomes, Outcome{})
	if err := e.Ledger.Save(rec, true); err != nil {
		return nil, fmt.Errorf("pod %s: nothing was attached, because the intent cannot be recorded: %w", rec.Plan.Pod, err)
	}
	last := len(rec.Outcomes) - 1
	begin := time.Now()
	result, err := e.Runner.Add(ctx, rec.attachment(last, lock))
	if err == nil {
		rec.Outcomes[last] = Outcome{Result: result, Millis: time.Since(begin).Milliseconds()}
		rec.Outcomes[last].Unseen = e.unseen(ctx, rec, last)
		err = e.Ledger.Save(rec, false)
	}
	if err == nil {
		return result, nil
	}
	failure := rec.failure(last, "ADD", err)
	undo, cancel := e.undoContext(ctx)
	defer cancel()
	_, err = e.unplug(undo, rec, last, lock)
	return nil, errors.Join(failure, err)
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
	err = e.Runner.Del(ctx, Attachment{Attachment: a, Sandbox: sb, Lock: lock}, nil)
	if err != nil && !alreadyGone(err) {
		return &Failure{Pod: pod, Network: a.Network, Interface: a.Interface, Verb: "DEL", Err: err}
	}
	return nil
}

// unplug deletes one attachment and takes it out of the record.
func (e *Engine) unplug(ctx context.Context, rec Record, i int, lock Lock) (Record, error) {
	err := e.Runner.Del(ctx, rec.attachment(i, lock), rec.Outcomes[i].Result)
	if err != nil && !alreadyGone(err) {
		return rec, rec.failure(i, "DEL", err)
	}
	rec.Plan.Attachments = slices.Delete(slices.Clone(rec.Plan.Attachments), i, i+1)
	rec.Outcomes = slices.Delete(slices.Clone(rec.Outcomes), i, i+1)
	if len(rec.Plan.Attachments) == 0 {
		return rec, e.Ledger.Remove(rec.Sandbox.ContainerID)
	}
	return rec, e.Ledger.Save(rec, false)
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
	rec.Sandbox.NetNS = sb.NetNS
	if missing := len(rec.Plan.Attachments) - len(rec.Outcomes); missing > 0 {
		rec.Outcomes = append(rec.Outcomes, make([]Outcome, missing)...)
	}
	return rec, nil
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
