package hotplug

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// sandboxes finds the records of pods. It is told of the sandboxes that are attached; for
// others the ledger has to be looked through, which takes long where Multus v4 has left
// hundreds of thousands of files.
type sandboxes struct {
	mu     sync.Mutex
	ids    map[plan.Pod][]string
	looked time.Time // when the last look through the ledger began
}

// add notes whose a sandbox is.
func (s *sandboxes) add(pod plan.Pod, containerID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[plan.Pod][]string{}
	}
	if !slices.Contains(s.ids[pod], containerID) {
		s.ids[pod] = append(s.ids[pod], containerID)
	}
}

// of are the sandboxes of a pod: one, as a rule, and an older one that is not deleted yet.
func (s *sandboxes) of(pod plan.Pod) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids[pod])
}

// drop forgets a sandbox that is no more.
func (s *sandboxes) drop(pod plan.Pod, containerID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[pod] = slices.DeleteFunc(s.ids[pod], func(id string) bool { return id == containerID })
}

// retain forgets the sandboxes of all other pods.
func (s *sandboxes) retain(pods []gather.Pod) {
	there := map[plan.Pod]bool{}
	for _, p := range pods {
		there[p.Pod] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.ids, func(p plan.Pod, _ []string) bool { return !there[p] })
}

// searched tells whether the ledger has been looked through since then.
func (s *sandboxes) searched(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked.After(since)
}

// found is what a look through the ledger found that began then.
func (s *sandboxes) found(began time.Time, all []attach.Record) {
	for _, rec := range all {
		s.add(rec.Plan.Pod, rec.Sandbox.ContainerID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = began
}

// newest loads the newest record of a pod.
func (r *Reconciler) newest(pod plan.Pod) (newest attach.Record, found bool, err error) {
	for _, id := range r.sandboxes.of(pod) {
		rec, err := r.Load(id)
		switch {
		case errors.Is(err, attach.ErrNoRecord) || err == nil && rec.Plan.Pod != pod:
			r.sandboxes.drop(pod, id)
		case err != nil:
			return newest, false, err
		case !found || rec.Created.After(newest.Created):
			newest, found = rec, true
		}
	}
	return newest, found, nil
}
