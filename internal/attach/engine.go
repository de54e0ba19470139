package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/plan"
)

// Engine executes plans through its ports. Runner, Links, Ledger and Log must be set; the
// zero values of the others mean what their comments say.
type Engine struct {
	Runner Runner
	Links  Links
	Ledger Ledger
	Log    *slog.Logger
	// DeviceInfo may be nil: nothing is told of devices then.
	DeviceInfo DeviceInfo
	// Parallelism is how many secondary networks are attached at once; less than 2
	// attaches one after the other.
	Parallelism int
	// CheckDelegates makes CHECK ask the plugins of every network, not only of the primary.
	CheckDelegates bool
	// UndoTimeout bounds the undo of a failed ADD, which goes on when the caller's
	// context has ended. 0 means 30 s.
	UndoTimeout time.Duration
	// LockTimeout is how long DEL waits for the delegates of another operation on the
	// sandbox before it ends them. 0 means 30 s.
	LockTimeout time.Duration
	// Now is the clock of records. Nil means time.Now.
	Now func() time.Time
}

const (
	defaultUndoTimeout = 30 * time.Second
	defaultLockTimeout = 30 * time.Second
	// evictWait is how long the lock may take to become free once its holders were ended.
	evictWait = 5 * time.Second
)

// Failure is the failure of one attachment: it names the network and keeps the
// cause, with a plugin's CNI error code, in reach of errors.As.
type Failure struct {
	Pod       plan.Pod
	Sandbox   string // names what has no pod
	Network   string
	Interface string
	Verb      string // ADD, DEL, CHECK
	Err       error
}

func (f *Failure) Error() string {
	whose := "pod " + f.Pod.String()
	if f.Pod.Name == "" && f.Sandbox != "" {
		whose = "sandbox " + f.Sandbox
	}
	return fmt.Sprintf("%s: network %s (interface %s): %s: %v", whose, f.Network, f.Interface, f.Verb, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

// undoContext goes on when the caller is gone, with a time of its own.
func (e *Engine) undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), orDefault(e.UndoTimeout, defaultUndoTimeout))
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// load reads the record of a sandbox that is about to be deleted, as the runtime
// calls it in sb. A damaged record is set aside and kept for people; what libcni's
// cache still tells takes its place. v4's records leave the primary network's
// interface to the runtime, which calls it ifName.
func (e *Engine) load(sb Sandbox, ifName string) (Record, error) {
	rec, err := e.Ledger.Load(sb.ContainerID)
	for range 2 { // first the record, then results in libcni's cache
		if !errors.Is(err, ErrDamaged) {
			break
		}
		e.Log.Error("a damaged record is set aside", "sandbox", sb.ContainerID, "error", err)
		if err := e.Ledger.SetAside(sb.ContainerID); err != nil {
			return Record{}, err
		}
		rec, err = e.Ledger.Load(sb.ContainerID)
	}
	rec.calledBy(sb, ifName)
	return rec, err
}

func (r *Record) calledBy(sb Sandbox, ifName string) {
	r.Sandbox.NetNS = sb.NetNS
	if len(r.Plan.Attachments) > 0 && r.Plan.Attachments[0].Interface == "" {
		r.Plan.Attachments[0].Interface = ifName
	}
}

// lock takes the sandbox's lock for an operation on a pod that can be repeated.
func (e *Engine) lock(ctx context.Context, containerID string, pod plan.Pod) (Lock, error) {
	lock, err := e.Ledger.Lock(ctx, containerID)
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, tryLater(pod, fmt.Errorf("another operation on this sandbox still runs: %w", err))
	}
	return nil, fmt.Errorf("pod %s: the sandbox cannot be locked: %w", pod, err)
}

func tryLater(pod plan.Pod, err error) error {
	return api.WithCode(types.ErrTryAgainLater, fmt.Errorf("pod %s: %w", pod, err))
}

// lockForCleaning takes the sandbox's lock as DEL needs it: it waits for a running
// operation, and after LockTimeout ends the orphans that still hold the lock.
func (e *Engine) lockForCleaning(ctx context.Context, containerID string) (Lock, error) {
	waiting, cancel := context.WithTimeout(ctx, orDefault(e.LockTimeout, defaultLockTimeout))
	defer cancel()
	lock, err := e.Ledger.Lock(waiting, containerID)
	if err == nil || ctx.Err() != nil || waiting.Err() == nil {
		return lock, err
	}
	e.Log.Error("delegates of an earlier operation still run and are ended", "sandbox", containerID)
	if err := e.Ledger.Evict(containerID); err != nil {
		return nil, err
	}
	waiting, cancel = context.WithTimeout(ctx, evictWait)
	defer cancel()
	return e.Ledger.Lock(waiting, containerID)
}

// attachment puts a planned attachment into its sandbox.
func (r Record) attachment(i int, lock Lock) Attachment {
	return Attachment{Attachment: r.Plan.Attachments[i], Sandbox: r.Sandbox, Env: r.Plan.Env, Lock: lock}
}

// HasPrimary tells whether the record has the sandbox's primary network. That of a pod
// older than the ledger, to which a network was added, has not.
func (r Record) HasPrimary() bool {
	return slices.ContainsFunc(r.Plan.Attachments, func(a plan.Attachment) bool { return a.Role == plan.Primary })
}

func (r Record) failure(i int, verb string, err error) error {
	a := r.Plan.Attachments[i]
	return &Failure{Pod: r.Plan.Pod, Sandbox: r.Sandbox.ContainerID, Network: a.Network, Interface: a.Interface, Verb: verb, Err: err}
}
