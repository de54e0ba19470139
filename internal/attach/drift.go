package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/multus-thick/multus/internal/plan"
)

// Drift is a difference that a running pod has acquired.
type Drift struct {
	Difference
	Pod     plan.Pod
	Network string
	// Mended says that it has been put right; Err says why that failed.
	Mended bool
	Err    error
}

// Watch compares sandboxes with what is recorded of them, again and again. It is more
// exact than CHECK: an interface that is down, and a lost route of the result other than
// a default one, count where the Watch has seen it otherwise before. Plugins may have
// put these elsewhere, or left them to the pod. It is for one goroutine.
type Watch struct {
	Engine *Engine
	// Mend puts lost addresses and routes back and interfaces up. It never runs a plugin.
	Mend bool

	seen map[string]map[string]Facts // by sandbox and interface: up, and routes
}

// Look compares one sandbox. One that somebody works on, is not attached, or has no
// namespace any more has no drift.
func (w *Watch) Look(ctx context.Context, containerID string) ([]Drift, error) {
	if !w.Engine.Ledger.Recorded(containerID) {
		return nil, nil // no lock is made for what is gone
	}
	waiting, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	lock, err := w.Engine.Ledger.Lock(waiting, containerID)
	if err != nil {
		return nil, nil
	}
	defer lock.Release()
	rec, err := w.Engine.Ledger.Load(containerID)
	if err != nil || rec.Origin != Ours || rec.State != Attached {
		return nil, nil // CHECK and the daemon's metrics tell of records that cannot be read
	}
	var all []Drift
	for i := range rec.Plan.Attachments {
		if i >= len(rec.Outcomes) || rec.result(i) == nil || rec.Outcomes[i].Unseen || rec.Outcomes[i].Detached {
			continue
		}
		found, err := w.attachment(ctx, rec, i)
		if errors.Is(err, ErrNoNetNS) {
			return nil, nil
		}
		if err != nil {
			return all, rec.failure(i, "comparing", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Keep forgets the sandboxes that are not among these.
func (w *Watch) Keep(containerIDs []string) {
	for id := range w.seen {
		if !slices.Contains(containerIDs, id) {
			delete(w.seen, id)
		}
	}
}

func (w *Watch) attachment(ctx context.Context, rec Record, i int) ([]Drift, error) {
	a := rec.Plan.Attachments[i]
	result, err := current(rec.result(i))
	if err != nil {
		return nil, err
	}
	see := func(name string) (Facts, error) { return w.Engine.Links.Facts(ctx, rec.Sandbox.NetNS, name) }
	found, err := differences(result, a.Interface, see)
	if err != nil {
		return nil, err
	}
	facts, err := see(a.Interface)
	switch {
	case err == nil:
		found = append(found, w.since(rec.Sandbox.ContainerID, a.Interface, facts, routesOf(result))...)
	case errors.Is(err, ErrNoNetNS) || !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	var all []Drift
	for _, d := range found {
		all = append(all, Drift{Difference: d, Pod: rec.Plan.Pod, Network: a.Network})
	}
	if w.Mend {
		w.mend(ctx, rec.Sandbox.NetNS, all)
	}
	return all, nil
}

// since finds what was there at an earlier look, and remembers what is there now.
func (w *Watch) since(id, ifName string, now Facts, routes []Route) []Difference {
	var all []Difference
	before := w.seen[id][ifName]
	if before.Up && !now.Up {
		all = append(all, Difference{Interface: ifName, Aspect: OfState})
	}
	for _, r := range routes {
		switch {
		case r.Dst.Bits() == 0: // compared in any case
		case slices.Contains(now.Routes, r):
			if !slices.Contains(before.Routes, r) {
				before.Routes = append(before.Routes, r)
			}
		case slices.Contains(before.Routes, r):
			all = append(all, Difference{Interface: ifName, Aspect: OfRoute, Route: r})
		}
	}
	before.Up = before.Up || now.Up
	if w.seen == nil {
		w.seen = map[string]map[string]Facts{}
	}
	if w.seen[id] == nil {
		w.seen[id] = map[string]Facts{}
	}
	w.seen[id][ifName] = before
	return all
}

// mend puts back what can be, interface by interface.
func (w *Watch) mend(ctx context.Context, netns string, all []Drift) {
	byInterface := map[string]*Lost{}
	for _, d := range all {
		lost := byInterface[d.Interface]
		if lost == nil {
			lost = &Lost{}
			byInterface[d.Interface] = lost
		}
		switch d.Aspect {
		case OfState:
			lost.Up = true
		case OfAddress:
			lost.Addresses = append(lost.Addresses, d.Address)
		case OfRoute:
			lost.Routes = append(lost.Routes, d.Route)
		}
	}
	for name, lost := range byInterface {
		missing := slices.ContainsFunc(all, func(d Drift) bool { return d.Interface == name && d.Aspect == OfLink })
		if missing || !lost.any() {
			continue
		}
		err := w.Engine.Links.Mend(ctx, netns, name, *lost)
		for i := range all {
			if all[i].Interface == name && all[i].Aspect != OfMAC {
				all[i].Mended, all[i].Err = err == nil, wrapped(err)
			}
		}
	}
}

func (l Lost) any() bool { return l.Up || len(l.Addresses) > 0 || len(l.Routes) > 0 }

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("it cannot be put right: %w", err)
}
