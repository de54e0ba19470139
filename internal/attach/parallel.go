package attach

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// attachAll attaches the primary network first, then the others: one after the
// other, or up to Parallelism at once.
func (a *adding) attachAll(ctx context.Context) error {
	all := a.rec.Plan.Attachments
	if a.Parallelism < 2 {
		for i := range all {
			if err := a.attachOne(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	for _, wave := range waves(all) {
		if err := a.attachWave(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// attachWave attaches some networks at once. After a failure nothing more is
// started; what runs is left to finish, so that it can be undone in order.
func (a *adding) attachWave(ctx context.Context, wave []int) error {
	var group errgroup.Group
	group.SetLimit(a.Parallelism)
	failed := make([]error, len(a.rec.Plan.Attachments))
	var stopped atomic.Bool
	for _, i := range wave {
		group.Go(func() error {
			if stopped.Load() {
				return nil
			}
			if failed[i] = a.attachOne(ctx, i); failed[i] != nil {
				stopped.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait() // the goroutines return nil: their errors are in failed, in the plan's order
	return errors.Join(failed...)
}

// waves groups attachments that may run at once. The primary network is alone and
// first; an attachment whose configuration names another's interface comes after
// that one; the auxiliary chain, which may work on any interface, comes last.
func waves(all []plan.Attachment) [][]int {
	level := make([]int, len(all))
	last := 0
	for i, a := range all {
		if i > 0 {
			level[i] = 1
		}
		for j := range all[:i] {
			if a.Role == plan.Auxiliary || names(a.Config, all[j].Interface) {
				level[i] = max(level[i], level[j]+1)
			}
		}
		last = max(last, level[i])
	}
	grouped := make([][]int, last+1)
	for i, l := range level {
		grouped[l] = append(grouped[l], i)
	}
	return grouped
}

// names tells whether the configuration holds the interface's name as a text.
func names(c cniconf.Config, ifName string) bool {
	return bytes.Contains(c.Bytes(), cniconf.Quote(ifName))
}
