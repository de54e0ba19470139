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
		_, err := e.Links.Interfaces(ctx, rec.Sandbox.NetNS)
		return errors.Is(err, ErrNoNetNS) // else its pod may still get a DEL from the runtime
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

// detachIdle detaches a sandbox that nobody works on, where its record says so.
// Records that are not ours or cannot be read are not for us to judge.
func (e *Engine) detachIdle(ctx context.Context, id string, wanted func(Record) bool) (tried bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	lock, err := e.Ledger.Lock(waiting, id)
	if err != nil {
		return false, nil
	}
	defer lock.Release()
	rec, err := e.Ledger.Load(id)
	if err != nil || rec.Origin != Ours || !wanted(rec) {
		return false, nil
	}
	e.Log.Info("a sandbox that was left behind is detached", "pod", rec.Plan.Pod.String(), "sandbox", id, "state", rec.State)
	return true, e.detach(ctx, rec, lock)
}
