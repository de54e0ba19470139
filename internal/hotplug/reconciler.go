package hotplug

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Reasons of events (contract 1.18).
const (
	ReasonRemoved       = "RemovedInterface"
	ReasonFailedAdding  = "FailedAddingInterface"
	ReasonFailedRemoval = "FailedRemovingInterface"
	ReasonRejected      = "InterfaceAddRejected"
)

const (
	// workers is how many pods are worked on at once.
	workers = 8
	// look is how often all pods are compared with the ledger, at most.
	look = time.Minute
	// fresh is how long a pod may lack a sandbox before one is looked for: its ADD may be
	// under way, and its report.
	fresh = 10 * time.Second
	// What failed is tried again after firstPause, then twice as long each time, up to lastPause.
	firstPause, lastPause = time.Second, 2 * time.Minute
	// reportTimeout bounds the writing of a pod's condition.
	reportTimeout = 10 * time.Second
)

// Cluster is what is asked of, and said to, Kubernetes.
type Cluster interface {
	gather.Pods
	// Pods are the pods of this node.
	Pods() []gather.Pod
	// Problem says why the caches cannot be relied on yet; empty when they can.
	Problem() string
	// Added, Note and Warn record events on the pod, without waiting.
	Added(pod plan.Pod, ifName string, ips []string, network string)
	Note(pod plan.Pod, reason, message string)
	Warn(pod plan.Pod, reason, message string)
	// ReportNetworks says on the pod in what its networks differ from those that it
	// selects; nothing where they do not.
	ReportNetworks(ctx context.Context, pod plan.Pod, differs string) error
}

// Engine attaches and detaches networks of recorded sandboxes.
type Engine interface {
	PlugRecorded(ctx context.Context, containerID string, pod plan.Pod, a plan.Attachment) (attach.Record, error)
	UnplugRecorded(ctx context.Context, containerID string, pod plan.Pod, a plan.Attachment) (attach.Record, error)
}

// Options are what a Reconciler works with.
type Options struct {
	Cluster Cluster
	Engine  Engine
	// Records reads all records of ours, and tells of its failure itself; it may take
	// minutes. Load reads one, and fails
	// with attach.ErrNoRecord where there is none.
	Records func(ctx context.Context) ([]attach.Record, error)
	Load    func(containerID string) (attach.Record, error)
	// Rested is when the next look is due after one that began then and has ended now.
	Rested func(begin time.Time, every time.Duration) time.Time
	// Plan plans one network more for the sandbox of a record.
	Plan func(ctx context.Context, rec attach.Record, j Joining) (*plan.Plan, error)
	// Interfaces lists the interfaces of a sandbox.
	Interfaces func(ctx context.Context, netns string) ([]string, error)
	// Admit waits for a place among the operations that run at once.
	Admit func(ctx context.Context) (giveBack func(), err error)
	// Publish tells of a pod's networks, in the background: entries are its network-status.
	Publish func(before, now attach.Record, entries []netspec.StatusEntry)
	// Count counts an operation.
	Count func(Operation, Outcome)
	// Forbidden says why nothing may be attached from here; empty where it may.
	Forbidden string
	// AddTimeout and DelTimeout bound one operation.
	AddTimeout, DelTimeout time.Duration
	Log                    *slog.Logger
}

// Operation is what is done with one network.
type Operation string

// Outcome is how an operation ended.
type Outcome string

// Values of metrics.
const (
	Attach Operation = "attach"
	Detach Operation = "detach"

	OK     Outcome = "ok"
	Failed Outcome = "failed"
)

// Reconciler makes running pods' networks those of their annotations.
type Reconciler struct {
	Options
	sandboxes sandboxes

	pauses workqueue.TypedRateLimiter[name]

	mu     sync.Mutex
	queue  workqueue.TypedDelayingInterface[name] // nil before Run
	states map[name]*state
	begun  bool // the pods that are older than this process have their states
}

// name is a pod's namespace and name: the queue is one of names, and who has the name is
// looked up when its turn comes.
type name struct{ namespace, name string }

// state is what is remembered of a pod.
type state struct {
	uid string
	// told is what its condition says; it is not known of pods that are older than this
	// process.
	told  string
	known bool
	// rejected is the annotation whose rejection was told; nil for none.
	rejected *string
	// missed is since when no sandbox of it is found; zero where one is. It begins anew
	// when the pod says something else.
	missed time.Time
	says   string
	// tried is the annotation that was last worked on. It has no turn before next, where
	// some of it failed.
	tried string
	next  time.Time
	// differences and optional are how many networks it lacks or has too many, and how
	// many of them it may lack.
	differences, optional int
}

// New makes a Reconciler, which does nothing until Run.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options: o, states: map[name]*state{},
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[name](firstPause, lastPause),
	}
}

// Run works until ctx ends; what is under way then is cut off, and is recorded.
func (r *Reconciler) Run(ctx context.Context) {
	queue := workqueue.NewTypedDelayingQueue[name]()
	r.mu.Lock()
	r.queue = queue
	r.mu.Unlock()
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { r.lookAround(ctx) })
	for range workers {
		all.Go(func() {
			for r.work(ctx, queue) {
			}
		})
	}
}

// Changed says that a pod may have changed. It does not block.
func (r *Reconciler) Changed(namespace, podName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.Add(name{namespace, podName})
	}
}

// Attached says that a sandbox of a pod was attached. It does not block.
func (r *Reconciler) Attached(pod plan.Pod, containerID string) {
	r.sandboxes.add(pod, containerID)
	r.Changed(pod.Namespace, pod.Name)
}

// NetworksChanged says that some definition may have changed: what failed is tried
// again at once. It does not block.
func (r *Reconciler) NetworksChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, s := range r.states {
		if s.differences > 0 {
			s.next = time.Time{}
			r.pauses.Forget(n)
			r.queue.Add(n)
		}
	}
}

// Differences is how many networks running pods lack or have too many, and how many of
// those they may lack.
func (r *Reconciler) Differences() (all, optional int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		all, optional = all+s.differences, optional+s.optional
	}
	return all, optional
}

// lookAround queues all pods, now and then: once the caches are there, which is how a
// restart resumes, and later for what nobody told of.
func (r *Reconciler) lookAround(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) && r.Cluster.Problem() == "" {
			r.lookOnce(ctx, now)
			next = r.Rested(now, look)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Reconciler) lookOnce(ctx context.Context, now time.Time) {
	pods := r.Cluster.Pods()
	r.begin(pods)
	r.sandboxes.retain(pods)
	if r.missing(now) {
		if all, err := r.Records(ctx); err == nil {
			r.sandboxes.found(now, all)
		}
	}
	for _, pod := range pods {
		r.Changed(pod.Namespace, pod.Name)
	}
}

// begin notes which pods are older than this process: what was said of them is not known.
func (r *Reconciler) begin(pods []gather.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 0; !r.begun && i < len(pods); i++ {
		r.states[nameOf(pods[i])] = &state{uid: pods[i].UID}
	}
	r.begun = true
}

// missing tells whether the ledger has to be looked through, as it has at first.
func (r *Reconciler) missing(now time.Time) bool {
	if !r.sandboxes.searched(time.Time{}) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		if !s.missed.IsZero() && now.Sub(s.missed) >= fresh && !r.sandboxes.searched(s.missed) {
			return true
		}
	}
	return false
}

func nameOf(pod gather.Pod) name { return name{pod.Namespace, pod.Name} }

// work does one pod's turn.
func (r *Reconciler) work(ctx context.Context, queue workqueue.TypedDelayingInterface[name]) bool {
	n, down := queue.Get()
	if down {
		return false
	}
	defer queue.Done(n)
	switch wait := r.early(n); {
	case wait > 0:
		queue.AddAfter(n, wait)
	case r.Cluster.Problem() != "" || r.reconcile(ctx, n):
		pause := r.pauses.When(n)
		r.pause(n, pause)
		queue.AddAfter(n, pause)
	default:
		r.pauses.Forget(n)
	}
	return true
}

// early is how long what failed has to wait still, where the pod changed, but not its
// annotation.
func (r *Reconciler) early(n name) time.Duration {
	pod, _ := r.Cluster.Cached(n.namespace, n.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[n]
	if s == nil || s.uid != pod.UID || pod.Deleting || s.differences == 0 || s.tried != pod.Annotations[netspec.AnnotationNetworks] {
		return 0
	}
	return time.Until(s.next)
}

func (r *Reconciler) pause(n name, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.states[n]; s != nil {
		s.next = time.Now().Add(pause)
	}
}

// state is that of the pod with this UID; a predecessor's is forgotten. Nothing was said yet
// of a pod that is younger than this process.
func (r *Reconciler) state(n name, uid string) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[n]
	if s == nil || s.uid != uid {
		s = &state{uid: uid, known: r.begun}
		r.states[n] = s
	}
	return s
}

func (r *Reconciler) forget(n name) {
	r.pauses.Forget(n)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, n)
}
