package daemon

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// admission bounds the annotated ADDs in flight. Who is not admitted waits first
// in, first out, and leaves the queue when its caller goes.
type admission struct {
	limit   int
	places  *semaphore.Weighted
	taken   atomic.Int64
	waiting atomic.Int64
}

func newAdmission(limit int) *admission {
	return &admission{limit: limit, places: semaphore.NewWeighted(int64(limit))}
}

// place is one of the bounded places. It belongs to a connection: the report on
// it, or its end, gives the place back.
type place struct {
	mu    sync.Mutex
	admit *admission
	held  bool
}

// take waits for a place until ctx ends. A connection that has one keeps it.
func (p *place) take(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		return nil
	}
	p.admit.waiting.Add(1)
	err := p.admit.places.Acquire(ctx, 1)
	p.admit.waiting.Add(-1)
	if err == nil {
		p.held = true
		p.admit.taken.Add(1)
	}
	return err
}

// giveBack is safe to call more than once.
func (p *place) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		p.held = false
		p.admit.taken.Add(-1)
		p.admit.places.Release(1)
	}
}

func (a *admission) inFlight() int64 { return a.taken.Load() }

// idle waits until nothing is in flight or ctx ends.
func (a *admission) idle(ctx context.Context) {
	if a.places.Acquire(ctx, int64(a.limit)) == nil {
		a.places.Release(int64(a.limit))
	}
}
