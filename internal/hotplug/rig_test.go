package hotplug

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

var (
	web     = plan.Pod{Namespace: "ns", Name: "web", UID: "u1"}
	sandbox = attach.Sandbox{ContainerID: "c1", NetNS: "/ns/c1"}
)

// rig is a node with one running pod, web, whose only network is the primary one, and a
// Reconciler that runs, all in a bubble of its own time.
type rig struct {
	*testing.T
	hot     *Reconciler
	cluster *cluster
	host    *fakehost.Host
	engine  *attach.Engine
	stop    func()
}

// inBubble runs a test with a rig. change, which may be nil, changes the options.
func inBubble(t *testing.T, change func(*Options), test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, host: fakehost.New(sandbox.NetNS), cluster: &cluster{pods: map[string]gather.Pod{}}}
		r.engine = &attach.Engine{Runner: r.host.Process(), Links: r.host.Process(), Ledger: r.host.Process(), Log: slog.New(slog.DiscardHandler)}
		r.cluster.put(web, "")
		r.add()
		o := Options{
			Cluster: r.cluster, Records: r.records, Load: r.host.Process().Load, Engine: r.engine, Interfaces: r.engine.Links.Interfaces,
			Plan:   r.cluster.plan,
			Rested: func(begin time.Time, every time.Duration) time.Time { return begin.Add(every) },
			Admit:  func(context.Context) (func(), error) { return func() {}, nil },
			Publish: func(_, now attach.Record, entries []netspec.StatusEntry) {
				r.cluster.say(now.Plan.Pod, entries)
			},
			Count:      func(op Operation, outcome Outcome) { r.cluster.tell("count %s %s", op, outcome) },
			AddTimeout: time.Minute, DelTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		}
		if change != nil {
			change(&o)
		}
		r.hot = New(o)
		r.start()
		defer func() { r.stop() }()
		r.host.Transcript()
		r.cluster.heard() // what is known of the pod was asked
		test(r)
	})
}

// start runs the Reconciler, or another after stop: a restart.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	r.hot = New(r.hot.Options)
	r.cluster.follow(r.hot)
	running.Go(func() { r.hot.Run(ctx) })
	r.stop = func() {
		cancel()
		running.Wait()
	}
	synctest.Wait()
}

// add attaches the pod to the primary network, as the plugin does.
func (r *rig) add() {
	r.Helper()
	p := &plan.Plan{Version: plan.Version, Pod: web, Attachments: []plan.Attachment{{Role: plan.Primary, Network: "primary", Interface: "eth0", Config: conf("primary", 0)}}}
	rec, err := r.engine.Add(r.Context(), sandbox, p)
	if err != nil {
		r.Fatal(err)
	}
	r.cluster.say(web, entriesOf(rec))
}

// select changes the pod's annotation, and waits so long.
func (r *rig) selects(annotation string, wait time.Duration) {
	r.Helper()
	r.cluster.put(web, annotation)
	r.settle(wait)
}

func (r *rig) settle(wait time.Duration) {
	time.Sleep(wait)
	synctest.Wait()
}

// heard compares what the cluster was told since the last look.
func (r *rig) heard(want ...string) {
	r.Helper()
	r.same("told", want, r.cluster.heard())
}

// delegates compares which plugins ran since the last look.
func (r *rig) delegates(want ...string) {
	r.Helper()
	text := ""
	for _, w := range want {
		text += w + "\n"
	}
	r.same("delegates", text, r.host.Delegates())
}

func (r *rig) same(what string, want, got any) {
	r.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (r *rig) state() (differences, optional int) { return r.hot.Differences() }

// records reads the host's records.
func (r *rig) records(context.Context) ([]attach.Record, error) {
	listed, err := r.host.Process().All()
	var all []attach.Record
	for _, l := range listed {
		rec, lerr := r.host.Record(l.ContainerID)
		all, err = append(all, rec), errors.Join(err, lerr)
	}
	return all, err
}

func conf(name string, subnet int) cniconf.Config {
	c, err := cniconf.Parse([]byte(fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"fake","subnets":["10.%d.0.0/24"]}`, name, subnet)))
	if err != nil {
		panic(err)
	}
	return c
}

// cluster has the pods and networks of the test, and remembers what it is told.
type cluster struct {
	mu       sync.Mutex
	pods     map[string]gather.Pod
	live     map[string]string // annotations that the API has and the cache has not
	away     bool              // the API
	problem  string
	missing  map[string]bool // definitions
	told     []string
	follower *Reconciler
}

var errAway = fmt.Errorf("%w: the API is away", gather.ErrNotYet)

func (c *cluster) follow(r *Reconciler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follower = r
}

func (c *cluster) changed(pod plan.Pod) {
	c.mu.Lock()
	r := c.follower
	c.mu.Unlock()
	if r != nil {
		r.Changed(pod.Namespace, pod.Name)
	}
}

func (c *cluster) put(pod plan.Pod, annotation string) {
	c.set(func() {
		annotations := maps.Clone(c.pods[pod.String()].Annotations)
		if annotations == nil || c.pods[pod.String()].UID != pod.UID {
			annotations = map[string]string{}
		}
		annotations[netspec.AnnotationNetworks] = annotation
		c.pods[pod.String()] = gather.Pod{Subject: plan.Subject{Pod: pod, Annotations: annotations}}
	})
	c.changed(pod)
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// say is the network-status arriving on the pod.
func (c *cluster) say(pod plan.Pod, entries []netspec.StatusEntry) {
	short := []string{}
	for _, e := range entries {
		short = append(short, e.Name+"@"+e.Interface)
	}
	c.set(func() {
		p := c.pods[pod.String()]
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[netspec.AnnotationStatus] = netspec.FormatStatus(entries)
		c.pods[pod.String()] = p
		if c.follower != nil {
			c.told = append(c.told, fmt.Sprintf("status %v", short))
		}
	})
	c.changed(pod)
}

func (c *cluster) Cached(namespace, name string) (gather.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.pods[namespace+"/"+name]
	return pod, ok
}

func (c *cluster) Live(_ context.Context, namespace, name string) (gather.Pod, error) {
	pod, ok := c.Cached(namespace, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	annotation, other := c.live[namespace+"/"+name]
	switch {
	case c.away:
		return pod, errAway
	case !ok:
		return pod, gather.ErrNotFound
	case other:
		pod.Annotations = map[string]string{netspec.AnnotationNetworks: annotation}
	}
	return pod, nil
}

func (c *cluster) Pods() []gather.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods))
}

func (c *cluster) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

func (c *cluster) Added(pod plan.Pod, ifName string, ips []string, network string) {
	c.tell("AddedInterface %s: %s %v from %s", pod, ifName, ips, network)
}

func (c *cluster) Note(pod plan.Pod, reason, message string) {
	c.tell("%s %s: %s", reason, pod, message)
}

func (c *cluster) Warn(pod plan.Pod, reason, message string) {
	c.tell("%s %s: %s", reason, pod, message)
}

func (c *cluster) ReportNetworks(_ context.Context, pod plan.Pod, differs string) error {
	c.tell("condition %s: %s", pod, differs)
	return nil
}

func (c *cluster) tell(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

func (c *cluster) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.told
	c.told = nil
	return told
}

// plan is what the gatherer makes of an element.
func (c *cluster) plan(_ context.Context, rec attach.Record, j Joining) (*plan.Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing[j.Name] {
		return nil, fmt.Errorf("pod %s: there is no %s", rec.Plan.Pod, j.Ref())
	}
	subnet := int(j.Name[0])
	return &plan.Plan{Pod: rec.Plan.Pod, Attachments: []plan.Attachment{{
		Role: plan.Secondary, Network: j.Ref().String(), Element: j.Element, Interface: j.Interface, Config: conf(j.Name, subnet), Selected: &j.Selection,
	}}}, nil
}

var errBusy = errors.New("busy")
