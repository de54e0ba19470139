package fakehost

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/multus-thick/multus/internal/attach"
)

// Host is a node. Its methods are safe for concurrent use.
type Host struct {
	mu         sync.Mutex
	namespaces map[string]*namespace      // by path
	leases     map[string]map[lease]owner // by network
	cache      map[string][]cached        // libcni's results, by container id
	records    map[string]stored          // by container id
	aside      []string                   // container ids of records that were set aside
	locks      map[string]*lock           // of sandboxes, by container id
	shared     int                        // holders of the lock above all, shared
	exclusive  bool                       // somebody holds it alone
	changed    chan struct{}              // closed when a lock becomes free
	scripts    map[string]Script          // by step
	running    map[owner]string           // delegates that run, and their verb
	calls      []Call
	peak       int
	faults     []string
	transcript []string
}

// Call is what a delegate was given.
type Call struct {
	Verb string
	attach.Attachment
	Prev json.RawMessage
}

type owner struct{ containerID, ifName string }

func (o owner) String() string { return o.containerID + "/" + o.ifName }

type lease = netip.Addr

// New makes a host with the given network namespaces, which have no interfaces but lo.
func New(paths ...string) *Host {
	h := &Host{
		namespaces: map[string]*namespace{}, leases: map[string]map[lease]owner{}, cache: map[string][]cached{},
		records: map[string]stored{}, locks: map[string]*lock{}, changed: make(chan struct{}),
		scripts: map[string]Script{}, running: map[owner]string{},
	}
	for _, path := range paths {
		h.namespaces[path] = &namespace{links: map[string]attach.Facts{}}
	}
	return h
}

// Script is what a step does before it has its effect; where it fails, the step
// fails. An ADD has leased its addresses by then, as plugins that fail half-way do.
type Script func(context.Context) error

// On scripts a step, nil ends it. Steps are "ADD", "DEL", "CHECK", "STATUS" and "GC"
// with a network's name behind them; "save" with a record's state behind it; and
// "interfaces", "facts", "routes", "unroute", "lock", "lock all", "evict", "load",
// "remove", "set aside", "unfinished" and "list".
func (h *Host) On(step string, s Script) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scripts[step] = s
}

// Fail is the script of a step that fails.
func Fail(err error) Script { return func(context.Context) error { return err } }

// Once runs the script the first time only.
func Once(s Script) Script {
	var once sync.Once
	return func(ctx context.Context) (err error) {
		once.Do(func() { err = s(ctx) })
		return err
	}
}

// Wait is the script of a step that does not end before the channel is closed, or its context ends.
func Wait(until <-chan struct{}) Script {
	return func(ctx context.Context) error {
		select {
		case <-until:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Slow is the script of a step that takes its time.
func Slow(d time.Duration) Script {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Host) script(ctx context.Context, step string) error {
	h.mu.Lock()
	s := h.scripts[step]
	h.mu.Unlock()
	if s == nil {
		return nil
	}
	return s(ctx)
}

// Calls are the calls of delegates so far, in the order in which they began.
func (h *Host) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// Peak is the largest number of delegates that ran at the same time.
func (h *Host) Peak() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peak
}

// Transcript takes the steps since it was last called, one a line.
func (h *Host) Transcript() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.transcript
	h.transcript = nil
	return join(lines)
}

// Delegates takes the transcript like Transcript does, and returns the delegates' steps only.
func (h *Host) Delegates() string {
	var lines []string
	for line := range strings.Lines(h.Transcript()) {
		if strings.ToUpper(line[:2]) == line[:2] {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return join(lines)
}

func join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// String is the whole state, sorted; what must never happen comes last.
func (h *Host) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(h.namespaces)) {
		lines = append(lines, "netns "+path)
		lines = append(lines, h.namespaces[path].lines()...)
	}
	for _, network := range slices.Sorted(maps.Keys(h.leases)) {
		for _, a := range slices.SortedFunc(maps.Keys(h.leases[network]), lease.Compare) {
			lines = append(lines, fmt.Sprintf("lease %s %s %s", network, a, h.leases[network][a]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.cache)) {
		for _, c := range h.cache[id] {
			lines = append(lines, fmt.Sprintf("cache %s/%s %s", id, c.attachment.Interface, c.attachment.Config.Name()))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.records)) {
		lines = append(lines, "record "+id+" "+h.records[id].String())
	}
	for _, id := range slices.Sorted(maps.Keys(h.locks)) {
		lines = append(lines, "lock "+id)
	}
	for _, id := range h.aside {
		lines = append(lines, "aside "+id)
	}
	for _, f := range h.faults {
		lines = append(lines, "fault "+f)
	}
	return join(lines)
}
