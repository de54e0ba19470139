package fakehost

import (
	"runtime"
	"sync"

	"github.com/multus-thick/multus/internal/attach"
)

// Process is one run of a program on the host. It implements the ports of the engine.
type Process struct {
	host *Host

	mu      sync.Mutex
	steps   int
	crashAt int
	crash   Crash
	dead    bool
}

var (
	_ attach.Runner = (*Process)(nil)
	_ attach.Links  = (*Process)(nil)
	_ attach.Ledger = (*Process)(nil)
)

// Crash is how a process dies at a step.
type Crash string

// The crashes.
const (
	Before Crash = "before" // the step has not begun
	After  Crash = "after"  // the step is done, nobody learns how it ended
	// Halfway kills the step's delegate too, when it has its addresses but no
	// interface yet. Like After for steps that are no ADD.
	Halfway Crash = "halfway"
	// Orphan lets the step's delegate live on, under the sandbox's lock. Like After for
	// steps without a delegate.
	Orphan Crash = "orphan"
)

// Process starts a process.
func (h *Host) Process() *Process { return &Process{host: h} }

// CrashAt makes the process die at a step, counted from 1.
func (p *Process) CrashAt(step int, how Crash) { p.crashAt, p.crash = step, how }

// Run runs f as the process, and tells whether it came to its end.
func (p *Process) Run(f func()) (survived bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		survived = true
	}()
	<-done
	return survived
}

// step begins a step and returns what ends it. A process that is dead goes no further
// in any of its goroutines.
func (p *Process) step(line string) (crash Crash, end func()) {
	p.mu.Lock()
	p.steps++
	if p.steps == p.crashAt {
		crash = p.crash
	}
	if p.dead || crash == Before {
		p.dead = true
		p.mu.Unlock()
		runtime.Goexit()
	}
	p.mu.Unlock()
	p.host.note(line)
	return crash, func() {
		if crash != "" {
			p.die()
		}
	}
}

// die ends the goroutine as that of a killed process: nothing but deferred calls
// runs, which for the engine is giving locks back.
func (p *Process) die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	runtime.Goexit()
}

func (h *Host) note(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.transcript = append(h.transcript, line)
}
