package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/multus-thick/multus/internal/gather"
)

// retry is how long failed lists and watches wait before they are tried again.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.4, Steps: 10, Cap: 5 * time.Second}

// firstRetry limits that wait before the first list has been read: a daemon is ready
// within a second after the API answers.
const firstRetry = 700 * time.Millisecond

// table holds one row T for each object O of a resource. It is the store of a
// reflector, which alone writes it.
type table[O metav1.Object, T any] struct {
	resource string
	row      func(O) T
	log      *slog.Logger
	changed  func(namespace, name string) // nil for nobody; told of rows that may have changed, or gone

	mu      sync.RWMutex
	rows    map[string]T // by "namespace/name"
	synced  bool
	problem error     // of the last request; nil if it went well
	since   time.Time // of the problem
}

var _ cache.TransformingStore = (*table[*nad, int])(nil)

func newTable[O metav1.Object, T any](resource string, log *slog.Logger, row func(O) T) *table[O, T] {
	return &table[O, T]{resource: resource, log: log, row: row, rows: map[string]T{}}
}

// run keeps the reflector going until ctx ends.
func (t *table[O, T]) run(ctx context.Context, r *cache.Reflector) {
	pause := retry
	for ctx.Err() == nil {
		if err := r.ListAndWatchWithContext(ctx); err == nil { // else it was noted by source
			pause = retry
		}
		d := pause.Step()
		if t.lastSync().IsZero() {
			d = min(d, firstRetry)
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// note remembers how the last request went, and logs when that changes.
func (t *table[O, T]) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	had, since := t.problem, t.since
	t.problem = err
	if had == nil {
		t.since = time.Now()
	}
	t.mu.Unlock()
	switch {
	case had == nil && err != nil:
		t.log.Warn("cannot watch the API", "resource", t.resource, "cause", oneLine(err))
	case had != nil && err == nil:
		t.log.Info("can watch the API again", "resource", t.resource, "after", time.Since(since).Round(time.Millisecond))
	}
}

func (t *table[O, T]) get(namespace, name string) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	row, ok := t.rows[namespace+"/"+name]
	return row, ok
}

func (t *table[O, T]) all() []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.rows))
}

func (t *table[O, T]) lastSync() time.Time {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch {
	case !t.synced:
		return time.Time{}
	case t.problem != nil:
		return t.since
	}
	return time.Now()
}

// state is nil where the rows are those of the API.
func (t *table[O, T]) state() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch {
	case t.problem != nil && t.synced:
		return fmt.Errorf("%s not followed for %v: %w", t.resource, time.Since(t.since).Round(time.Second), t.problem)
	case t.problem != nil:
		return fmt.Errorf("%s not read yet: %w", t.resource, t.problem)
	case !t.synced:
		return fmt.Errorf("%s not read: %w", t.resource, gather.ErrNotYet)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (t *table[O, T]) Replace(objects []any, _ string) error {
	rows := make(map[string]T, len(objects))
	for _, object := range objects {
		o := object.(O)
		rows[tableKey(o)] = t.row(o)
	}
	t.mu.Lock()
	before := t.rows
	t.rows, t.synced = rows, true
	t.mu.Unlock()
	for key := range before {
		if _, still := rows[key]; !still {
			t.tell(key)
		}
	}
	for key := range rows {
		t.tell(key)
	}
	return nil
}

// tell is called without the lock: who is told may look.
func (t *table[O, T]) tell(key string) {
	if t.changed != nil {
		namespace, name, _ := strings.Cut(key, "/")
		t.changed(namespace, name)
	}
}

// Add implements cache.ReflectorStore.
func (t *table[O, T]) Add(object any) error { return t.Update(object) }

// Update implements cache.ReflectorStore.
func (t *table[O, T]) Update(object any) error {
	o := object.(O)
	row := t.row(o)
	t.mu.Lock()
	t.rows[tableKey(o)] = row
	t.mu.Unlock()
	t.tell(tableKey(o))
	return nil
}

// Delete implements cache.ReflectorStore.
func (t *table[O, T]) Delete(object any) error {
	key := tableKey(object.(O))
	t.mu.Lock()
	delete(t.rows, key)
	t.mu.Unlock()
	t.tell(key)
	return nil
}

// Resync implements cache.ReflectorStore: there is none.
func (t *table[O, T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore, for objects on their way to Replace.
func (t *table[O, T]) Transformer() cache.TransformFunc { return trim }

func tableKey(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// oneLine is the text of an error that may be several joined ones.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
