package attach

import (
	"context"
	"errors"
	"time"
)

// idleWait is how long a clean-up that is not urgent waits for a sandbox's lock: who
// holds it is busy.
const idleWait = 20 * time.Millisecond

// Sweep finishes clean-ups that are overdue: DELs that failed and that no runtime
// repeats (CRI-O does not), and ADDs whose caller was killed, once their namespace
// is gone. It cleans up at most so many sandboxes, and touches none that is attached.
func (e *Engine) Sweep(ctx context.Context, most int) error {
	unfinished, err := e.Ledger.Unfinished()
	if err != nil {
		return err
	}
	overdue := func(rec Record) bool {
		if rec.State != Intent {
			return rec.State == Detaching
		}
		return e.gone(ctx, rec) // else its pod may still get a DEL from the runtime
	}
	var failed []error
	for _, id := range unfinished {
		if most == 0 || ctx.Err() != nil {
			break
		}
		tried, err := e.detachIdle(ctx, id, overdue)
		failed = append(failed, err)
		if tried {
			most--
		}
	}
	return errors.Join(failed...)
}

// gone tells that a sandbox has no network namespace any more.
func (e *Engine) gone(ctx context.Context, rec Record) bool {
	_, err := e.Links.Interfaces(ctx, rec.Sandbox.NetNS)
	return errors.Is(err, ErrNoNetNS)
}

// detachIdle detaches a sandbox that nobody works on, where its record says so.
// Records that cannot be read are not for us to judge.
func (e *Engine) detachIdle(ctx context.Context, id string, wanted func(Record) bool) (tried bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	lock, err := e.Ledger.Lock(waiting, id)
	if err != nil {
		return false, nil
	}
	defer lock.Release()
	rec, err := e.Ledger.Load(id)
	if err != nil || !wanted(rec) {
		return false, nil
	}
	e.Log.Info("a sandbox that was left behind is detached", "pod", rec.Plan.Pod.String(), "sandbox", id, "state", rec.State)
	return true, e.detach(ctx, rec, lock)
}

// Collect gives back what an orphan holds, rec being of Results or of a sandbox's file:
// the caller is certain that the pod does not exist any more. A sandbox whose namespace is
// there, or that somebody works on, is left alone. It tells whether it tried.
func (e *Engine) Collect(ctx context.Context, rec Record) (tried bool, err error) {
	if rec.Origin == Cache {
		return e.collectResult(ctx, rec)
	}
	return e.detachIdle(ctx, rec.Sandbox.ContainerID, func(rec Record) bool { return e.gone(ctx, rec) })
}

// CollectNamed collects the orphan in a file that the daemon has named, where it may not act
// itself.
func (e *Engine) CollectNamed(ctx context.Context, name string) (tried bool, err error) {
	rec, err := e.Ledger.Open(name)
	if err != nil || rec.Origin == Ours && rec.State == Detaching {
		return false, nil // collected already, or Sweep's by now
	}
	return e.Collect(ctx, rec)
}

// collectResult detaches the one attachment of a result whose sandbox has no file of its
// own. Where it fails the result stays, and no record is made of it.
func (e *Engine) collectResult(ctx context.Context, rec Record) (tried bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	lock, err := e.Ledger.Lock(waiting, rec.Sandbox.ContainerID)
	if err != nil {
		return false, nil
	}
	defer lock.Release()
	if e.Ledger.Recorded(rec.Sandbox.ContainerID) || !e.gone(ctx, rec) {
		return false, nil
	}
	e.Log.Info("an attachment that was left behind is detached", "pod", rec.Plan.Pod.String(), "sandbox", rec.Sandbox.ContainerID, "network", rec.Plan.Attachments[0].Network)
	if err := e.Runner.Del(ctx, rec.attachment(0, lock), rec.result(0)); err != nil && !alreadyGone(err) {
		return true, rec.failure(0, "DEL", err)
	}
	return true, e.Ledger.Forget(rec)
}
