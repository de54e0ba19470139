package daemon

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/cri"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/nodestate"
)

// care starts what the daemon looks after in the background, each on its own so that a
// long look through old files delays no other.
func (d *Daemon) care(ctx context.Context, group *errgroup.Group) {
	c := &caretaker{Daemon: d}
	if d.Config.ChrootDir != "" {
		c.engine = d.localPlugin(nil).Engine(d.Config, "", d.Log)
		// The dynamic networks controller reads the same key, as its container sees the socket.
		socket := strings.TrimPrefix(d.Config.CRISocketPath, nodestate.HostMount+"/")
		c.runtime = cri.New(filepath.Join(d.Config.ChrootDir, socket))
	}
	for _, run := range []func(context.Context){
		(&orphans{caretaker: c}).run, (&strays{caretaker: c}).run, (&drifts{caretaker: c}).run,
	} {
		group.Go(func() error { run(ctx); return nil })
	}
}

// caretaker is what all care needs.
type caretaker struct {
	*Daemon
	// engine acts on the host and runtime knows its sandboxes; both are nil in a daemon that
	// may not act there.
	engine  *attach.Engine
	runtime Runtime
}

// Runtime is the node's container runtime.
type Runtime interface {
	// Sandboxes are the ids of all that it knows.
	Sandboxes(ctx context.Context) (map[string]bool, error)
	// Sandbox is the running one of the pod with this UID.
	Sandbox(ctx context.Context, uid string) (attach.Sandbox, error)
}

// gone tells a namespace that is gone for certain, as far as it is to be seen from here:
// through the host's root, or where the host's folders are mounted by custom.
func (d *Daemon) gone(path string) bool {
	return netns.Gone(cmp.Or(d.Config.ChrootDir, nodestate.HostMount), path)
}

func (d *Daemon) trace(rec attach.Record) audit.Trace {
	return audit.Trace{Record: rec, Gone: d.gone(rec.Sandbox.NetNS)}
}

// A look through very many files is no haste: so many are read, and then none for a while.
const (
	paceFiles = 64
	pacePause = 50 * time.Millisecond
)

// rests is how many times as long as a look the rest after it is, at least.
const rests = 4

// rested is when the next look is due after one that began then and has ended now.
func rested(begin time.Time, every time.Duration) time.Time {
	return begin.Add(max(every, (1+rests)*time.Since(begin)))
}

// pacer counts files.
type pacer int

// next waits where it is time to.
func (p *pacer) next(ctx context.Context) error {
	if *p++; *p%paceFiles != 0 {
		return ctx.Err()
	}
	return wait(ctx, pacePause)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
