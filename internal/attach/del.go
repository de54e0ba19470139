package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Del gives back all that was taken for a sandbox, in reverse order, every
// attachment attempted. Attachments that fail stay recorded and are all that a
// retry repeats. Without a record the error wraps ErrNoRecord: the caller decides
// what that means. ifName is the runtime's CNI_IFNAME, for v4's records that leave
// the primary interface's name to it. The record returned is what was found.
func (e *Engine) Del(ctx context.Context, sb Sandbox, ifName string) (Record, error) {
	lock, err := e.lockForCleaning(ctx, sb.ContainerID)
	if err != nil {
		return Record{}, err
	}
	defer lock.Release()
	rec, err := e.load(sb, ifName)
	if err != nil {
		return Record{}, err
	}
	// Plugins take a path without anything for a namespace that is gone, and fail for ever
	// at one with a plain file: what is left of it after a boot.
	if _, err := e.Links.Interfaces(ctx, rec.Sandbox.NetNS); errors.Is(err, ErrNoNetNS) && !errors.Is(err, os.ErrNotExist) {
		rec.Sandbox.NetNS = ""
	}
	return rec, e.detach(ctx, rec, lock)
}

// owedFor is how long a network that ADD refused is asked again to clean up.
const owedFor = time.Hour

// detach deletes the attachments of a record that are not deleted yet, under the
// sandbox's lock, and then the record. It records how far it got.
//
// A plugin that refused ADD may refuse DEL for the same reason, for ever: a configuration
// that it cannot read. The pod never had that network, and must go. So it is no failure,
// but the record stays, and Sweep asks again for an hour. Failures of the other plugins of
// its list, which may have set something up, are failures.
func (e *Engine) detach(ctx context.Context, rec Record, lock Lock) error {
	outcomes := make([]Outcome, len(rec.Plan.Attachments)) // the caller's stay as they are
	copy(outcomes, rec.Outcomes)
	rec.Outcomes = outcomes
	var failed, owed []error
	for i := len(rec.Plan.Attachments) - 1; i >= 0; i-- {
		if rec.Outcomes[i].Detached {
			continue
		}
		err := e.runDel(ctx, rec.attachment(i, lock), rec.Outcomes[i].Result)
		switch {
		case err == nil || alreadyGone(err):
			rec.Outcomes[i].Detached = true
		case answeredBy(err, rec.Outcomes[i].Refused):
			owed = append(owed, rec.failure(i, "DEL", err))
		default:
			failed = append(failed, rec.failure(i, "DEL", err))
		}
	}
	again := e.now().Sub(rec.Created) < owedFor
	if len(owed) > 0 {
		e.Log.Error("a network that refused to attach refuses to clean up too: what it may hold is lost, unless a later try succeeds", "later try", again, "error", errors.Join(owed...))
	}
	if len(failed) == 0 && (len(owed) == 0 || !again) {
		return e.Ledger.Remove(rec.Sandbox.ContainerID)
	}
	rec.State = Detaching
	if err := e.Ledger.Save(rec, false); err != nil {
		failed = append(failed, fmt.Errorf("what is left to delete cannot be recorded: %w", err))
	}
	return errors.Join(failed...)
}

// answeredBy tells that an error, each of several that are joined, is that plugin's answer.
func answeredBy(err error, plugin string) bool {
	switch e := err.(type) { //nolint:errorlint // errors.As finds one branch, all count here
	case Answer:
		return plugin != "" && e.AnsweredBy() == plugin
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !answeredBy(err, plugin) })
	case interface{ Unwrap() error }:
		return answeredBy(e.Unwrap(), plugin)
	}
	return false
}

// alreadyGone tells that plugins failed to delete something because it does not
// exist, which is what DEL wants (CNI specification, section 2, DEL). Of several
// joined errors each must say so. An error with a cause of ours, like a plugin that
// could not be run, joins that cause and does not count.
func alreadyGone(err error) bool {
	switch e := err.(type) { //nolint:errorlint // errors.As finds one branch, all count here
	case *types.Error:
		return e.Code == types.ErrUnknownContainer || saysNotFound(e.Msg)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !alreadyGone(err) })
	case interface{ Unwrap() error }:
		return alreadyGone(e.Unwrap())
	}
	return false
}
