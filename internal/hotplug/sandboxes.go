package hotplug

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// Ledger is the part of the ledger that is read here.
type Ledger interface {
	// Sandboxes names the sandboxes that have a record; none is read.
	Sandboxes() ([]string, error)
	// PodOf tells whose sandbox it is; ok is false of what Multus v4 left.
	PodOf(containerID string) (pod plan.Pod, ok bool)
	Load(containerID string) (attach.Record, error)
}

// sandboxes finds the records of pods. Whose a sandbox is never changes, so each record
// is opened once for that.
type sandboxes struct {
	ledger Ledger
	mu     sync.Mutex
	pods   map[string]plan.Pod // by container id; empty ones are of v4
}

// of is the newest record of the pod with this UID.
func (s *sandboxes) of(pod plan.Pod) (newest attach.Record, found bool, err error) {
	ids, err := s.owned(pod)
	if err != nil {
		return newest, false, err
	}
	for _, id := range ids {
		rec, err := s.ledger.Load(id)
		if errors.Is(err, attach.ErrNoRecord) {
			continue
		}
		if err != nil {
			return newest, false, err
		}
		if !found || rec.Created.After(newest.Created) {
			newest, found = rec, true
		}
	}
	return newest, found, nil
}

// owned are the sandboxes of a pod: one, as a rule, and an older one that is not deleted yet.
func (s *sandboxes) owned(pod plan.Pod) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, err := s.ledger.Sandboxes()
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(ids))
	var owned []string
	for _, id := range ids {
		there[id] = true
		if _, known := s.pods[id]; !known {
			owner, _ := s.ledger.PodOf(id)
			if s.pods == nil {
				s.pods = map[string]plan.Pod{}
			}
			s.pods[id] = owner
		}
		if s.pods[id] == pod {
			owned = append(owned, id)
		}
	}
	maps.DeleteFunc(s.pods, func(id string, _ plan.Pod) bool { return !there[id] })
	slices.Sort(owned)
	return owned, nil
}
