package attach

import (
	"context"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/plan"
)

// An optional network that cannot be attached does not stop its pod: the record is
// without it, and who follows the pod's annotation attaches it late.

// withoutUnready leaves out the optional networks of which no plugin can run.
func (e *Engine) withoutUnready(sb Sandbox, p *plan.Plan) *plan.Plan {
	left := *p
	left.Attachments = slices.DeleteFunc(slices.Clone(p.Attachments), func(a plan.Attachment) bool {
		if !a.Optional {
			return false
		}
		err := e.Runner.Ready(Attachment{Attachment: a, Sandbox: sb})
		if err != nil {
			e.tellLeftOut(&Failure{Pod: p.Pod, Network: a.Network, Interface: a.Interface, Verb: "ADD", Err: err})
		}
		return err != nil
	})
	if len(left.Attachments) == len(p.Attachments) {
		return p
	}
	plan.ShareRoutes(left.Attachments)
	return &left
}

func (e *Engine) tellLeftOut(err error) {
	e.Log.Error("an optional network is left out", "error", err)
}

// limit gives an optional network half of the time that the pod has left.
func (a *adding) limit(ctx context.Context, i int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !a.rec.Plan.Attachments[i].Optional || !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// leaveOut undoes an optional network that failed. Where that fails too it stays in the
// record, without a result, so that DEL undoes it.
func (a *adding) leaveOut(ctx context.Context, i int, err error) {
	a.tellLeftOut(a.rec.failure(i, "ADD", err))
	undo := a.Runner.Del(ctx, a.rec.attachment(i, a.lock), nil)
	if undo != nil && !alreadyGone(undo) {
		a.Log.Error("an optional network that failed cannot be undone yet", "error", a.rec.failure(i, "DEL", undo))
		return
	}
	a.started[i], a.leftOut[i] = false, true
}

// forgetLeftOut takes the networks that were left out from the record.
func (a *adding) forgetLeftOut() {
	if !slices.ContainsFunc(a.rec.Outcomes, func(o Outcome) bool { return o.Result == nil }) {
		return
	}
	left := a.rec
	left.Plan.Attachments, left.Outcomes = nil, nil // the plan is the caller's
	var started []bool
	for i, at := range a.rec.Plan.Attachments {
		if a.leftOut[i] {
			continue
		}
		if a.rec.Outcomes[i].Result == nil {
			at.Routes = plan.RouteWish{}
		}
		left.Plan.Attachments = append(left.Plan.Attachments, at)
		left.Outcomes = append(left.Outcomes, a.rec.Outcomes[i])
		started = append(started, a.started[i])
	}
	plan.ShareRoutes(left.Plan.Attachments)
	a.rec, a.started = left, started
}
