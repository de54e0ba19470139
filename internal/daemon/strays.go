package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
)

const (
	straysEvery = 5 * time.Second
	// lifeFirst and lifeMost bound how often the API is asked how one pod runs.
	lifeFirst = 5 * time.Second
	lifeMost  = 2 * time.Minute
)

// Values of the key "strays".
const (
	straysAttach  = "attach"
	straysRestart = "restart"
)

// Reasons of events on strays.
const (
	ReasonStray     = "NetworksMissing"
	ReasonStrayLeft = "NetworksStillMissing"
	ReasonHealed    = "NetworksRestored"
)

// strays looks for running pods that select networks although nothing here knows their
// sandbox: our configuration was absent when it was made.
type strays struct {
	*caretaker
	policy    string
	suspects  map[string]*suspect // by UID
	sandboxes map[string]string   // the namespaces of known sandboxes, by the pod's UID
}

// suspect is a pod that selects networks and of which no sandbox is known.
type suspect struct {
	pod     gather.Pod
	since   time.Time     // when that was first seen
	dead    []audit.Trace // of its earlier sandboxes
	cached  []audit.Trace // what libcni's results tell of it, looked up once
	looked  bool          // there
	exempt  bool          // it never will be a stray
	told    bool          // it is a stray
	healing bool          // some of its networks have been attached late
	next    time.Time     // of the next question
	pause   time.Duration // after that
}

func (s *strays) run(ctx context.Context) {
	s.suspects, s.sandboxes, s.policy = map[string]*suspect{}, map[string]string{}, s.Config.Strays
	if s.policy == straysAttach && s.engine == nil {
		s.Log.Warn("key \"strays\": \"attach\" needs the host's root (key \"chrootDir\", deploy/hotplug): strays are reported only")
		s.policy = ""
	}
	for wait(ctx, time.Second) == nil {
		if s.Cluster.Problem() != "" {
			continue
		}
		if err := s.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.Log.Warn("strays are not looked for", "error", err)
		}
		_ = wait(ctx, straysEvery-time.Second)
	}
}

// look is one look at all pods of the node. The ledger is read only where a pod's sandbox
// is not known, and the pod is new or has not been looked at for a while.
func (s *strays) look(ctx context.Context, now time.Time) error {
	due := s.suspect(now)
	if len(due) > 0 {
		if err := errors.Join(s.read(ctx), s.lookUp(ctx)); err != nil {
			return err
		}
	}
	for _, x := range due {
		x.pause = min(max(2*x.pause, lifeFirst), lifeMost)
		x.next = now.Add(x.pause)
		switch {
		case s.there(x.pod) && !x.healing:
			s.forget(ctx, x)
		case !x.exempt && !x.known():
			s.ask(ctx, x, now)
		}
	}
	s.count()
	return nil
}

// there tells that a pod's sandbox is recorded, and its namespace may be there.
func (s *strays) there(p gather.Pod) bool {
	netns, known := s.sandboxes[p.UID]
	return known && !s.gone(netns)
}

// suspect finds the pods whose sandbox is not known, and returns those that it is time to
// look at.
func (s *strays) suspect(now time.Time) []*suspect {
	var due []*suspect
	present := map[string]bool{}
	for _, p := range s.Cluster.Pods() {
		if !audit.Selects(p) || p.Deleting {
			continue
		}
		present[p.UID] = true
		x := s.suspects[p.UID]
		if x == nil && s.there(p) {
			continue
		}
		if x == nil {
			x = &suspect{since: now}
			s.suspects[p.UID] = x
		}
		if x.pod = p; !now.Before(x.next) {
			due = append(due, x)
		}
	}
	maps.DeleteFunc(s.suspects, func(uid string, _ *suspect) bool { return !present[uid] })
	maps.DeleteFunc(s.sandboxes, func(uid string, _ string) bool { return !present[uid] })
	return due
}

// read reads the ledger for the sandboxes of pods that select networks.
func (s *strays) read(ctx context.Context) error {
	pods := map[string]gather.Pod{}
	for _, p := range s.Cluster.Pods() {
		if audit.Selects(p) {
			pods[p.String()] = p
		}
	}
	for _, x := range s.suspects {
		x.dead = nil
	}
	pace := pacer(0)
	for rec, err := range s.ledger.Each() {
		if err != nil && rec.Sandbox.ContainerID == "" {
			return err
		}
		if err := pace.next(ctx); err != nil {
			return err
		}
		p, selects := pods[rec.Plan.Pod.String()]
		t := s.trace(rec)
		switch {
		case err != nil || !selects || rec.Origin != attach.Ours || !audit.Of(p, t):
		case audit.Known(p, t):
			s.sandboxes[p.UID] = rec.Sandbox.NetNS
		case s.suspects[p.UID] != nil:
			s.suspects[p.UID].dead = append(s.suspects[p.UID].dead, t)
		}
	}
	return nil
}

// forget drops a suspect that turned out well.
func (s *strays) forget(ctx context.Context, x *suspect) {
	delete(s.suspects, x.pod.UID)
	if x.told { // its sandbox was made anew
		s.healed(ctx, x)
	}
}

// known tells that libcni's results tell of its sandbox: it was attached before the upgrade.
func (x *suspect) known() bool {
	for _, t := range x.cached {
		if audit.Known(x.pod, t) {
			return true
		}
	}
	return false
}

// lookUp looks into libcni's cache for suspects that are new. It may be large.
func (s *strays) lookUp(ctx context.Context) error {
	fresh := map[string]*suspect{}
	for _, x := range s.suspects {
		for i := range x.cached {
			x.cached[i] = s.trace(x.cached[i].Record)
		}
		if !x.looked {
			fresh[x.pod.String()] = x
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	pace := pacer(0)
	for rec, err := range s.ledger.Results() {
		if err == nil {
			err = pace.next(ctx)
		}
		if err != nil {
			return err
		}
		x := fresh[rec.Plan.Pod.String()]
		if x == nil {
			continue
		}
		if t := s.trace(rec); audit.Of(x.pod, t) {
			x.cached = append(x.cached, t)
		}
	}
	for _, x := range fresh {
		x.looked = true
	}
	return nil
}

// ask finds out how a suspect runs, and judges it.
func (s *strays) ask(ctx context.Context, x *suspect, now time.Time) {
	life, err := s.Cluster.Life(ctx, x.pod.Pod)
	if err != nil {
		if !errors.Is(err, gather.ErrNotFound) {
			s.Log.Info("it is not known how a pod runs", "pod", x.pod.String(), "error", err)
		}
		return
	}
	x.exempt = life.Phase == audit.Exempt
	if !x.told && !audit.Stray(x.pod, life, slices.Concat(x.dead, x.cached), now.Sub(x.since)) {
		return
	}
	if !x.told {
		if err := s.read(ctx); err != nil || s.there(x.pod) { // its ADD may have ended since
			return
		}
		s.tell(ctx, x, life)
	}
	s.heal(ctx, x, life)
}

// tell says everywhere that a pod is a stray, once, and corrects what its status claims.
func (s *strays) tell(ctx context.Context, x *suspect, life audit.Life) {
	x.told = true
	const what = "it runs without the networks that it selects: Multus was not called when its sandbox was made"
	s.Log.Error("a stray: "+what, "pod", x.pod.String(), "networks", x.pod.Annotations[netspec.AnnotationNetworks])
	s.Cluster.Warn(x.pod.Pod, ReasonStray, "The pod runs without the networks that it selects: Multus was not called when its sandbox was made")
	s.report(ctx, x, what)
	s.status(x, life) //nolint:contextcheck // the publisher's own, which run was given
}

// status writes what a stray really has; more is what was attached late.
func (s *strays) status(x *suspect, life audit.Life, more ...netspec.StatusEntry) {
	before, _ := netspec.ParseStatus(x.pod.Annotations[netspec.AnnotationStatus]) // as good as none
	name, ifName := "", defaultInterface
	for _, e := range before {
		if e.Default {
			name, ifName = e.Name, e.Interface
		}
	}
	if s.watcher != nil {
		name = s.watcher.State().Choice.Config.Name()
	}
	now := append(audit.TrueStatus(life, name, ifName), more...)
	if text := netspec.FormatStatus(now); text != netspec.FormatStatus(before) {
		s.publisher.publish(x.pod.Pod, text) //nolint:contextcheck // the publisher's own, which run was given
	}
}

func (s *strays) report(ctx context.Context, x *suspect, differs string) {
	if err := s.Cluster.ReportNetworks(ctx, x.pod.Pod, differs); err != nil && ctx.Err() == nil {
		s.Log.Warn("the condition of a pod cannot be written", "pod", x.pod.String(), "error", err)
	}
}

func (s *strays) healed(ctx context.Context, x *suspect) {
	s.Log.Info("a stray has its networks", "pod", x.pod.String())
	s.Cluster.Note(x.pod.Pod, ReasonHealed, "The pod has the networks that it selects")
	s.report(ctx, x, "")
}

// count is for the metric.
func (s *strays) count() {
	n := 0
	for _, x := range s.suspects {
		if x.told {
			n++
		}
	}
	s.metrics.strays.Store(int64(n))
}

// heal does what the policy says. What fails is tried again, ever more rarely.
func (s *strays) heal(ctx context.Context, x *suspect, life audit.Life) {
	var err error
	switch {
	case s.policy == straysAttach:
		err = s.attach(ctx, x, life)
	case s.policy == straysRestart && (x.pod.Static || !life.Controlled):
		x.exempt = true
		s.Cluster.Warn(x.pod.Pod, ReasonStrayLeft, "The pod is not evicted: no controller would make it anew")
		return
	case s.policy == straysRestart:
		if err = s.Cluster.Evict(ctx, x.pod.Pod); err == nil {
			s.Log.Info("a stray is evicted", "pod", x.pod.String())
		}
	default:
		x.exempt = true // all is said
		return
	}
	s.metrics.heals(s.policy, err)
	if err != nil && ctx.Err() == nil {
		s.Log.Error("a stray stays one", "pod", x.pod.String(), "policy", s.policy, "error", err)
		s.Cluster.Warn(x.pod.Pod, ReasonStrayLeft, fmt.Sprintf("The pod still lacks networks that it selects: %v", err))
	}
}
