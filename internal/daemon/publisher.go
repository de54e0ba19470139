package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

const (
	// republish is how often the ledger is compared with what pods say of themselves.
	republish = time.Minute
	// settled is how old a record must be before its pod's status is missed: its report
	// may be on the way.
	settled = 10 * time.Second
)

// publisher writes network-status annotations, each until it is written, until the
// pod is gone, or until a newer one of the same pod takes its place.
type publisher struct {
	cluster Cluster
	claims  Claims // nil where their status is not written
	log     *slog.Logger
	metrics *metrics
	gone    func(netns string) bool                         // tells a namespace that is gone for certain
	load    func(containerID string) (attach.Record, error) // one record as it is now

	mu      sync.Mutex
	running context.Context // nil before start
	pending map[string]*publication
	writing map[string]*publication // of claims
	workers sync.WaitGroup
}

// publication is what is being written of one object.
type publication struct {
	pod    plan.Pod
	cancel context.CancelFunc
	ended  chan struct{}
	// waiting are told of the end: whoever wants this written, or an older one that it has
	// taken the place of.
	waiting []chan<- error
}

var errNotRunning = errors.New("the publisher has stopped")

// publish starts writing and returns where the end will be told. Who waits for an older
// status of the same pod is told of this one's end.
func (p *publisher) publish(pod plan.Pod, text string) <-chan error {
	done := make(chan error, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.Name == "" { // a sandbox of a runtime without Kubernetes
		done <- nil
		return done
	}
	if p.stopped() {
		done <- errNotRunning
		return done
	}
	ctx, cancel := context.WithCancel(p.running)
	mine := &publication{pod: pod, cancel: cancel, waiting: []chan<- error{done}}
	if older := p.pending[pod.String()]; older != nil {
		older.cancel()
		if older.pod == pod {
			mine.waiting = append(mine.waiting, older.waiting...)
			older.waiting = nil
		}
	}
	p.pending[pod.String()] = mine
	p.workers.Go(func() {
		defer cancel()
		err := p.write(ctx, pod, text)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, waiter := range mine.waiting {
			waiter <- err
		}
		if p.pending[pod.String()] == mine {
			delete(p.pending, pod.String())
		}
	})
	return done
}

// whole says of a pod that it lacks no networks, where something else was said before.
func (p *publisher) whole(pod plan.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped() {
		return
	}
	ctx := p.running
	p.workers.Go(func() {
		if err := p.cluster.ReportNetworks(ctx, pod, ""); err != nil && ctx.Err() == nil {
			p.log.Warn("the condition of a pod cannot be written", "pod", pod.String(), "error", err)
		}
	})
}

func (p *publisher) write(ctx context.Context, pod plan.Pod, text string) error {
	err := p.cluster.PatchStatus(ctx, p.target(pod), text)
	if ctx.Err() == nil { // else a newer one, or the next daemon, writes it
		p.metrics.published(err)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("the network-status cannot be written", "pod", pod.String(), "error", err)
	}
	return err
}

// target is the API's pod: a static pod's mirror has a UID of its own.
func (p *publisher) target(pod plan.Pod) plan.Pod {
	if cached, ok := p.cluster.Cached(pod.Namespace, pod.Name); ok && cached.Static {
		pod.UID = cached.UID
	}
	return pod
}

func (p *publisher) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// stopped tells that nothing is written, not yet or not any more. The lock is held.
func (p *publisher) stopped() bool { return p.running == nil || p.running.Err() != nil }

// start lets publish work until ctx ends. It comes before the first report.
func (p *publisher) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = ctx
}

// run publishes what the ledger holds and pods do not say: what was attached while the
// daemon or the API was away.
func (p *publisher) run(ctx context.Context, recorded func(context.Context) ([]attach.Record, error)) error {
	defer p.workers.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if now.Before(next) || p.cluster.Problem() != "" {
				continue
			}
			begin := time.Now()
			all, _ := recorded(ctx)
			next = rested(begin, republish)
			p.catchUp(now, all) //nolint:contextcheck // it publishes with ctx, which p.running is
		}
	}
}

func (p *publisher) catchUp(now time.Time, records []attach.Record) {
	latest := map[plan.Pod]time.Time{} // a pod may have an older sandbox that is not deleted yet
	for _, rec := range records {
		if latest[rec.Plan.Pod].Before(rec.Created) {
			latest[rec.Plan.Pod] = rec.Created
		}
	}
	for _, rec := range records {
		if rec.Created.Before(latest[rec.Plan.Pod]) {
			continue
		}
		if rec.State != attach.Attached || now.Sub(rec.Created) < settled || p.gone(rec.Sandbox.NetNS) {
			continue
		}
		pod, ok := p.cluster.Cached(rec.Plan.Pod.Namespace, rec.Plan.Pod.Name)
		if !ok || !pod.Static && pod.UID != rec.Plan.Pod.UID {
			continue
		}
		if says(pod, flatten(attach.StatusEntries(rec))) {
			continue
		}
		rec, err := p.load(rec.Sandbox.ContainerID) // networks may have come and gone since it was read
		if err != nil || rec.State != attach.Attached {
			continue
		}
		if entries := flatten(attach.StatusEntries(rec)); !says(pod, entries) {
			primary, plugged := foreignEntries(rec, pod)
			p.publish(rec.Plan.Pod, netspec.FormatStatus(slices.Concat(primary, entries, plugged))) //nolint:contextcheck // the publisher's own, which run was given
			p.publishClaims(rec.Plan.Pod, claimStatus(rec))                                         //nolint:contextcheck // likewise
		}
	}
}

// foreignEntries are those elements of the pod's annotation that a record does not tell:
// the primary network's, where the others came late to a sandbox that another program
// made, and those that the callers of /delegate wrote.
func foreignEntries(rec attach.Record, pod gather.Pod) (primary, plugged []netspec.StatusEntry) {
	roles := map[string]plan.Role{}
	ours := false
	for _, a := range rec.Plan.Attachments {
		roles[a.Interface] = a.Role
		ours = ours || a.Role == plan.Primary
	}
	entries, _ := netspec.ParseStatus(pod.Annotations[netspec.AnnotationStatus])
	for _, e := range entries {
		switch {
		case roles[e.Interface] == plan.Plugged:
			plugged = append(plugged, e)
		case e.Default && !ours:
			primary = append(primary, e)
		}
	}
	return primary, plugged
}

func flatten(byAttachment [][]netspec.StatusEntry) []netspec.StatusEntry {
	var all []netspec.StatusEntry
	for _, entries := range byAttachment {
		all = append(all, entries...)
	}
	return all
}

// says tells whether the pod's annotation holds all the entries, beside others
// that a hot-plug may have added.
func says(pod gather.Pod, entries []netspec.StatusEntry) bool {
	have, err := netspec.ParseStatus(pod.Annotations[netspec.AnnotationStatus])
	if err != nil {
		return false
	}
	known := map[string]bool{}
	for _, e := range have {
		known[netspec.FormatStatus([]netspec.StatusEntry{e})] = true
	}
	for _, e := range entries {
		if !known[netspec.FormatStatus([]netspec.StatusEntry{e})] {
			return false
		}
	}
	return true
}

// recorded reads our own records, slowly where there are very many files beside them. An
// error has been told, and what was read before it counts. What cannot be read of one
// sandbox is for others to report.
func (d *Daemon) recorded(ctx context.Context) ([]attach.Record, error) {
	var all []attach.Record
	pace := pacer(0)
	for rec, err := range d.ledger.Each() {
		if err := pace.next(ctx); err != nil {
			return all, err
		}
		if err != nil && rec.Sandbox.ContainerID == "" {
			d.Log.Error("the ledger cannot be read", "error", err)
			return all, err
		}
		if err == nil && rec.Origin == attach.Ours {
			all = append(all, rec)
		}
	}
	return all, nil
}
