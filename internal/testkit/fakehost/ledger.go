package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// stored is a record as it rests: JSON, so that nothing is shared with the engine.
type stored struct {
	text    []byte
	origin  attach.Origin
	damaged bool
}

func (s stored) String() string {
	if s.damaged {
		return "damaged"
	}
	r, err := s.open()
	if err != nil {
		return err.Error()
	}
	line := string(r.State)
	for i, a := range r.Plan.Attachments {
		line += " " + a.Config.Name() + "/" + a.Interface
		switch {
		case i >= len(r.Outcomes):
		case r.Outcomes[i].Detached:
			line += "(detached)"
		case r.Outcomes[i].Result == nil:
			line += "(no result)"
		}
	}
	return line
}

func (s stored) open() (attach.Record, error) {
	if s.damaged {
		return attach.Record{}, attach.ErrDamaged
	}
	r := attach.Record{Origin: s.origin}
	return r, json.Unmarshal(s.text, &r)
}

// PutRecord stores a record with its origin.
func (h *Host) PutRecord(r attach.Record) {
	text, err := json.Marshal(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records[r.Sandbox.ContainerID] = stored{text: text, origin: r.Origin, damaged: err != nil}
}

// Record is the stored record of a sandbox.
func (h *Host) Record(containerID string) (attach.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.records[containerID]
	if !ok {
		return attach.Record{}, attach.ErrNoRecord
	}
	return s.open()
}

// DropRecord removes the record of a sandbox, and nothing else.
func (h *Host) DropRecord(containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.records, containerID)
}

// Damage makes the record of a sandbox unreadable.
func (h *Host) Damage(containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records[containerID] = stored{damaged: true}
}

// Recorded is attach.Ledger's. A look that finds nothing is the step "load"; one that
// finds something is the beginning of the Load that follows.
func (p *Process) Recorded(containerID string) bool {
	if _, err := p.host.Record(containerID); !errors.Is(err, attach.ErrNoRecord) {
		return true
	}
	_, end := p.step("load " + containerID)
	defer end()
	return false
}

// Load is attach.Ledger's.
func (p *Process) Load(containerID string) (attach.Record, error) {
	_, end := p.step("load " + containerID)
	defer end()
	if err := p.host.script(context.Background(), "load"); err != nil {
		return attach.Record{}, err
	}
	r, err := p.host.Record(containerID)
	if !errors.Is(err, attach.ErrNoRecord) {
		return r, err
	}
	return p.host.fromCache(containerID)
}

// fromCache makes a record of libcni's results alone.
func (h *Host) fromCache(containerID string) (attach.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.cache[containerID]
	if len(all) == 0 {
		return attach.Record{}, attach.ErrNoRecord
	}
	r := attach.Record{State: attach.Attached, Origin: attach.Cache, Sandbox: all[0].attachment.Sandbox, Plan: plan.Plan{Version: plan.Version}}
	for _, c := range all {
		a := c.attachment.Attachment
		r.Plan.Pod = plan.PodOf(a.Args)
		r.Plan.Attachments = append(r.Plan.Attachments, plan.Attachment{
			Role: a.Role, Network: a.Config.Name(), Interface: a.Interface, Config: a.Config, Args: a.Args, CapabilityArgs: a.CapabilityArgs,
		})
		r.Outcomes = append(r.Outcomes, attach.Outcome{Result: c.result})
	}
	return r, nil
}

// Save is attach.Ledger's.
func (p *Process) Save(r attach.Record, durable bool) error {
	line := "save " + string(r.State)
	if durable {
		line += " durable"
	}
	_, end := p.step(line)
	defer end()
	if err := p.host.script(context.Background(), "save "+string(r.State)); err != nil {
		return err
	}
	if len(r.Plan.Attachments) == 0 {
		return errors.New("a record needs attachments")
	}
	r.Origin = attach.Ours
	p.host.PutRecord(r)
	return nil
}

// Remove is attach.Ledger's.
func (p *Process) Remove(containerID string) error {
	_, end := p.step("remove")
	defer end()
	if err := p.host.script(context.Background(), "remove"); err != nil {
		return err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	delete(p.host.records, containerID)
	delete(p.host.cache, containerID)
	return nil
}

// SetAside is attach.Ledger's.
func (p *Process) SetAside(containerID string) error {
	_, end := p.step("set aside")
	defer end()
	if err := p.host.script(context.Background(), "set aside"); err != nil {
		return err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	delete(p.host.records, containerID)
	p.host.aside = append(p.host.aside, containerID)
	return nil
}

// Unfinished is attach.Ledger's. It names every sandbox that has a record: the real
// one does not look into records either.
func (p *Process) Unfinished() (ids []string, err error) {
	_, end := p.step("unfinished")
	defer end()
	if err := p.host.script(context.Background(), "unfinished"); err != nil {
		return nil, err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	return slices.Sorted(maps.Keys(p.host.records)), nil
}

// All is attach.Ledger's.
func (p *Process) All() ([]attach.Listed, error) {
	ids, err := p.list()
	var all []attach.Listed
	for _, id := range ids {
		rec, err := p.Load(id)
		all = append(all, attach.Listed{ContainerID: id, Record: rec, Err: err})
	}
	return all, err
}

func (p *Process) list() ([]string, error) {
	_, end := p.step("list")
	defer end()
	if err := p.host.script(context.Background(), "list"); err != nil {
		return nil, err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	return slices.Sorted(maps.Keys(p.host.records)), nil
}

// Results is attach.Ledger's.
func (p *Process) Results() iter.Seq2[attach.Record, error] {
	p.host.mu.Lock()
	ids := slices.Sorted(maps.Keys(p.host.cache))
	p.host.mu.Unlock()
	return func(yield func(attach.Record, error) bool) {
		for _, id := range ids {
			whole, err := p.host.fromCache(id)
			if err != nil {
				continue // deleted meanwhile
			}
			for i := range whole.Plan.Attachments {
				one := whole
				one.Plan.Attachments, one.Outcomes = whole.Plan.Attachments[i:i+1], whole.Outcomes[i:i+1]
				if !yield(one, nil) {
					return
				}
			}
		}
	}
}

// Open is attach.Ledger's. Results have no names of their own here.
func (p *Process) Open(name string) (attach.Record, error) { return p.host.Record(name) }

// Forget is attach.Ledger's.
func (p *Process) Forget(r attach.Record) error {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	id := r.Sandbox.ContainerID
	p.host.cache[id] = slices.DeleteFunc(p.host.cache[id], func(c cached) bool {
		return slices.ContainsFunc(r.Plan.Attachments, func(a plan.Attachment) bool { return c.attachment.Interface == a.Interface })
	})
	if len(p.host.cache[id]) == 0 {
		delete(p.host.cache, id)
	}
	return nil
}

// lock is a held lock. Delegates that outlive their process hold it too.
type lock struct {
	host    *Host
	id      string // empty for the lock above all
	holders int
	orphans []context.CancelFunc
}

// Lock is attach.Ledger's.
func (p *Process) Lock(ctx context.Context, containerID string) (attach.Lock, error) {
	crash, end := p.step("lock " + containerID)
	defer end()
	if err := p.host.script(ctx, "lock"); err != nil {
		return nil, err
	}
	h := p.host
	if err := h.acquire(ctx, func() bool { return !h.exclusive }, func() { h.shared++ }); err != nil {
		return nil, err
	}
	l := &lock{host: h, id: containerID, holders: 1}
	if err := h.acquire(ctx, func() bool { return h.locks[containerID] == nil }, func() { h.locks[containerID] = l }); err != nil {
		h.release(func() { h.shared-- })
		return nil, err
	}
	if crash != "" { // the lock of a process that dies now is free
		l.Release()
	}
	return l, nil
}

// LockAll is attach.Ledger's.
func (p *Process) LockAll(ctx context.Context) (attach.Lock, error) {
	crash, end := p.step("lock all")
	defer end()
	if err := p.host.script(ctx, "lock all"); err != nil {
		return nil, err
	}
	h := p.host
	if err := h.acquire(ctx, func() bool { return h.shared == 0 && !h.exclusive }, func() { h.exclusive = true }); err != nil {
		return nil, err
	}
	l := &lock{host: h}
	if crash != "" {
		l.Release()
	}
	return l, nil
}

// Evict is attach.Ledger's: it ends the orphans.
func (p *Process) Evict(containerID string) error {
	_, end := p.step("evict")
	defer end()
	if err := p.host.script(context.Background(), "evict"); err != nil {
		return err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if l := p.host.locks[containerID]; l != nil {
		for _, kill := range l.orphans {
			kill()
		}
	}
	return nil
}

// acquire waits until the host is as wished, and takes what was waited for.
func (h *Host) acquire(ctx context.Context, free func() bool, take func()) error {
	for {
		h.mu.Lock()
		if free() {
			take()
			h.mu.Unlock()
			return nil
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a lock: %w", ctx.Err())
		}
	}
}

func (h *Host) release(give func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	give()
	close(h.changed)
	h.changed = make(chan struct{})
}

// Release is attach.Lock's.
func (l *lock) Release() {
	if l.id == "" {
		l.host.release(func() { l.host.exclusive = false })
		return
	}
	l.host.release(func() { l.host.shared--; l.drop() })
}

func (l *lock) drop() {
	if l.holders--; l.holders == 0 {
		delete(l.host.locks, l.id)
	}
}

// inherit makes an orphan hold the lock until it calls free; Evict ends its context.
func (l *lock) inherit(ctx context.Context) (_ context.Context, free func()) {
	ctx, kill := context.WithCancel(ctx)
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	l.holders++
	l.orphans = append(l.orphans, kill)
	return ctx, func() {
		kill()
		l.host.release(l.drop)
	}
}

// FD is attach.Lock's. There are no descriptors here.
func (l *lock) FD() uintptr { return 0 }
