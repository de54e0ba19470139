package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/plan"
)

// Add attaches a sandbox to all the networks of its plan, or to none: when a step
// fails, the steps before it are undone in reverse order. What an earlier,
// unfinished ADD of the same sandbox left is undone first.
//
// The order is: lock, clean, check names, record the intent (durable), attach,
// move default routes, record the outcome. The record returned holds the results
// in the plan's order.
func (e *Engine) Add(ctx context.Context, sb Sandbox, p *plan.Plan) (Record, error) {
	if len(p.Attachments) == 0 {
		return Record{}, fmt.Errorf("pod %s: the plan has no attachments, not even the primary network", p.Pod)
	}
	lock, err := e.lock(ctx, sb.ContainerID, p.Pod)
	if err != nil {
		return Record{}, err
	}
	defer lock.Release()
	if err := e.cleanBefore(ctx, sb, p, lock); err != nil {
		return Record{}, err
	}
	p = e.withoutUnready(sb, p)
	if err := e.startable(ctx, sb, p); err != nil {
		return Record{}, err
	}
	rec := Record{State: Intent, Created: e.now(), Sandbox: sb, Plan: *p, Outcomes: make([]Outcome, len(p.Attachments))}
	if err := e.Ledger.Save(rec, true); err != nil {
		return Record{}, fmt.Errorf("pod %s: nothing was attached, because the intent cannot be recorded: %w", p.Pod, err)
	}
	a := &adding{Engine: e, lock: lock, rec: rec}
	if err := a.run(ctx); err != nil {
		a.undo(ctx)
		return a.rec, err
	}
	return a.rec, nil
}

// cleanBefore gives back what an earlier ADD of the sandbox took: it did not finish,
// or its caller never learnt that it did.
func (e *Engine) cleanBefore(ctx context.Context, sb Sandbox, p *plan.Plan, lock Lock) error {
	if !e.Ledger.Recorded(sb.ContainerID) {
		return nil
	}
	old, err := e.load(sb, p.Attachments[0].Interface)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Pod, err)
	}
	e.Log.Warn("an earlier ADD of this sandbox is undone first", "sandbox", sb.ContainerID, "pod", p.Pod.String(), "state", old.State)
	if err := e.detach(ctx, old, lock); err != nil {
		return tryLater(p.Pod, fmt.Errorf("an earlier ADD of this sandbox cannot be undone: %w", err))
	}
	return nil
}

// startable finds what would make the ADD fail, before anything runs.
func (e *Engine) startable(ctx context.Context, sb Sandbox, p *plan.Plan) error {
	var failed []error
	for _, a := range p.Attachments {
		if err := e.Runner.Ready(Attachment{Attachment: a, Sandbox: sb}); err != nil {
			failed = append(failed, &Failure{Pod: p.Pod, Network: a.Network, Interface: a.Interface, Verb: "ADD", Err: err})
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return e.namesFree(ctx, sb, p)
}

// namesFree finds interfaces that are in the namespace already, before anything runs.
func (e *Engine) namesFree(ctx context.Context, sb Sandbox, p *plan.Plan) error {
	present, err := e.Links.Interfaces(ctx, sb.NetNS)
	if errors.Is(err, ErrNoNetNS) {
		err = api.WithCode(types.ErrInvalidNetNS, err)
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Pod, err)
	}
	var taken []error
	for _, a := range p.Attachments {
		if slices.Contains(present, a.Interface) {
			taken = append(taken, &Failure{
				Pod: p.Pod, Network: a.Network, Interface: a.Interface, Verb: "ADD",
				Err: errors.New("the pod's network namespace already has an interface of this name"),
			})
		}
	}
	return errors.Join(taken...)
}

// adding is one ADD under way, under its lock.
type adding struct {
	*Engine
	lock    Lock
	rec     Record
	started []bool // by attachment: its plugins may have run
	leftOut []bool // by attachment: it is optional, failed and was undone
	unroute func(context.Context) error
}

func (a *adding) run(ctx context.Context) error {
	a.started = make([]bool, len(a.rec.Plan.Attachments))
	a.leftOut = make([]bool, len(a.rec.Plan.Attachments))
	if err := a.attachAll(ctx); err != nil {
		return err
	}
	a.forgetLeftOut()
	if err := a.moveRoutes(ctx); err != nil {
		return err
	}
	for i := range a.rec.Outcomes {
		a.rec.Outcomes[i].Unseen = a.unseen(ctx, a.rec, i)
	}
	a.rec.State = Attached
	if err := a.Ledger.Save(a.rec, false); err != nil {
		return fmt.Errorf("pod %s: the outcome cannot be recorded: %w", a.rec.Plan.Pod, err)
	}
	return nil
}

// attachOne runs one attachment and keeps its result.
func (a *adding) attachOne(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return a.rec.failure(i, "ADD", fmt.Errorf("not started: %w", context.Cause(ctx)))
	}
	begin := time.Now()
	a.started[i] = true
	limited, cancel := a.limit(ctx, i)
	defer cancel()
	result, info, err := a.runAdd(limited, a.rec.attachment(i, a.lock))
	a.rec.Outcomes[i] = Outcome{Result: result, DeviceInfo: info, Millis: time.Since(begin).Milliseconds(), Refused: refused(err)}
	switch {
	case err == nil:
		return nil
	case a.rec.Plan.Attachments[i].Optional && ctx.Err() == nil:
		a.leaveOut(ctx, i, err)
		return nil
	}
	return a.rec.failure(i, "ADD", err)
}

// refused is the plugin that answered with an error, and not for the time being.
func refused(err error) (plugin string) {
	var answer Answer
	var code *types.Error
	if errors.As(err, &answer) && errors.As(err, &code) && code.Code != types.ErrTryAgainLater {
		return answer.AnsweredBy()
	}
	return ""
}

// undo gives back everything in reverse order. It goes on when the caller is gone,
// within its own time. What cannot be given back stays recorded for DEL.
func (a *adding) undo(ctx context.Context) {
	ctx, cancel := a.undoContext(ctx)
	defer cancel()
	if a.unroute != nil {
		if err := a.unroute(ctx); err != nil {
			a.Log.Error("default routes were not put back", "pod", a.rec.Plan.Pod.String(), "error", err)
		}
	}
	for i, started := range a.started {
		a.rec.Outcomes[i].Detached = !started
	}
	if err := a.detach(ctx, a.rec, a.lock); err != nil {
		a.Log.Error("a failed ADD could not be undone completely, DEL will try again", "pod", a.rec.Plan.Pod.String(), "error", err)
	}
}
