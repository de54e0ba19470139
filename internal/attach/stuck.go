package attach

import (
	"context"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/plan"
)

const (
	// maxFailures is how often a network may fail in one clean-up of many sandboxes.
	maxFailures = 20
	// patience is how long one of them may take. It is not cut off in a hurry: some IPAM
	// plugins wait for a lock in the cluster.
	patience = 30 * time.Second
)

// Stuck counts, by CNI network, what could not be given back in a clean-up of many
// sandboxes, so that a network whose plugin is gone, or hangs, does not hold up the others.
type Stuck map[string]int

// Holds tells whether a record has a network that is not tried any more.
func (s Stuck) Holds(rec Record) bool {
	return slices.ContainsFunc(rec.Plan.Attachments, func(a plan.Attachment) bool { return s.gaveUp(a.Config.Name()) })
}

func (s Stuck) gaveUp(network string) bool { return s[network] >= maxFailures }

// Try gives back what a record holds, in a bounded time. A network that hangs is not tried
// again.
func (s Stuck) Try(ctx context.Context, rec Record, giveBack func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := giveBack(bounded)
	for _, a := range rec.Plan.Attachments {
		name := a.Config.Name()
		switch {
		case !concerns(err, a):
		case bounded.Err() != nil:
			s[name] = maxFailures
		default:
			s[name]++
		}
	}
	return err
}

// concerns tells whether an error, or one of several, is of an attachment.
func concerns(err error, a plan.Attachment) bool {
	switch e := err.(type) { //nolint:errorlint // it is unwrapped below
	case *Failure:
		return e.Network == a.Network && e.Interface == a.Interface
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return concerns(err, a) })
	case interface{ Unwrap() error }:
		return concerns(e.Unwrap(), a)
	}
	return false
}
