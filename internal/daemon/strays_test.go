package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// straysOf looks at a node by the clock of the test.
type straysOf struct {
	*careRig
	*strays
	now time.Time
}

func (r *careRig) strays(policy string) *straysOf {
	s := &straysOf{r, &strays{caretaker: r.caretaker, policy: policy, suspects: map[string]*suspect{}, sandboxes: map[string]string{}}, time.Now()}
	ctx, stop := context.WithCancel(r.Context())
	ended := make(chan struct{})
	r.running.d.publisher.start(ctx)
	go func() {
		defer close(ended)
		_ = r.running.d.publisher.run(ctx, func(context.Context) ([]attach.Record, error) { return nil, nil })
	}()
	r.Cleanup(func() { stop(); <-ended })
	return s
}

// finds looks once more, after a while, and tells what was said.
func (s *straysOf) finds(after time.Duration) []string {
	s.Helper()
	s.now = s.now.Add(after)
	s.Must(s.strays.look(s.Context(), s.now))
	s.Eventually("statuses are written", func() bool { return s.running.d.publisher.waiting() == 0 })
	told := s.heard()
	slices.Sort(told)
	for i := range told {
		told[i] = strings.Join(strings.Fields(told[i]), " ")
	}
	return told
}

// said is what is said of a stray that had claimed two networks.
func said(pod string) []string {
	return []string{
		"NetworksMissing of app/" + pod + ": The pod runs without the networks that it selects: Multus was not called when its sandbox was made",
		"networks of app/" + pod + ": it runs without the networks that it selects: Multus was not called when its sandbox was made",
		"status of app/" + pod + " u-" + pod + `: [{ "name": "cluster", "interface": "eth0", "ips": [ "10.0.0.9" ], "default": true, "dns": {} }]`,
	}
}

func TestR1StraysAreFound(t *testing.T) {
	r := careFor(t, false, nil)
	s := r.strays("report")
	for _, pod := range []string{"kept", "lost", "upgraded", "static", "ended", "starting", "plain"} {
		r.put(pod, "u-"+pod, "lan")
		r.life(pod, audit.Running, "10.0.0.9", true)
	}
	r.set(func(c *fakeCluster) {
		delete(c.pods["app/plain"].Annotations, netspec.AnnotationNetworks)
		c.pods["app/static"] = gather.Pod{Subject: c.pods["app/static"].Subject, Static: true}
	})
	r.record("kept", "kept")
	r.namespace("kept")
	r.record("static", "static")
	r.namespace("static")
	r.record("lost", "lost")
	r.claim("lost")
	r.scratch("upgraded")
	r.result("upgraded", "upgraded")
	r.namespace("upgraded")
	r.life("ended", audit.Exempt, "10.0.0.9", true)
	r.life("starting", audit.Waiting, "10.0.0.9", true)

	r.Same("the first look", said("lost"), s.finds(0))
	r.metricsSay("multus_strays 1")
	r.Same("it is said once", []string(nil), s.finds(time.Minute))

	r.record("starting", "starting")
	r.namespace("starting")
	r.life("starting", audit.Running, "10.0.0.9", true)
	r.Same("a pod that has come up", []string(nil), s.finds(time.Minute))

	r.record("again", "lost") // its sandbox was made anew
	r.namespace("again")
	r.Same("a stray no more", []string{"NetworksRestored of app/lost: The pod has the networks that it selects", "networks of app/lost: as selected"}, s.finds(3*time.Minute))
	r.metricsSay("multus_strays 0")

	r.dropNamespace("kept") // its sandbox was made anew without us
	r.Same("one that is new", []string{
		"NetworksMissing of app/kept: The pod runs without the networks that it selects: Multus was not called when its sandbox was made",
		"networks of app/kept: it runs without the networks that it selects: Multus was not called when its sandbox was made",
		`status of app/kept u-kept: [{ "name": "", "interface": "eth0", "ips": [ "10.0.0.9" ], "default": true, "dns": {} }]`,
	}, s.finds(time.Minute))
	r.set(func(c *fakeCluster) { delete(c.pods, "app/kept") })
	r.Same("it is gone", []string(nil), s.finds(time.Minute))
	r.metricsSay("multus_strays 0")
}

// After a reboot the API goes on saying that pods run, until the kubelet has looked.
func TestR1NoStraysByAnOldStatus(t *testing.T) {
	r := careFor(t, false, nil)
	s := r.strays("report")
	r.put("web", "u-web", "lan")
	r.record("before", "web")
	r.claim("web")
	r.life("web", audit.Running, "10.0.0.7", true)
	r.Same("at once", []string(nil), s.finds(0))
	r.Same("half a minute later", []string(nil), s.finds(30*time.Second))
	r.record("after", "web")
	r.namespace("after")
	r.Same("the kubelet has made its sandbox anew", []string(nil), s.finds(30*time.Second))
	r.Same("for good", 0, len(s.suspects))
}

func TestI5_StraysAreEvicted(t *testing.T) {
	r := careFor(t, false, nil)
	s := r.strays("restart")
	for _, pod := range []string{"owned", "bare"} {
		r.put(pod, "u-"+pod, "lan")
		r.record(pod, pod)
		r.claim(pod)
		r.life(pod, audit.Running, "10.0.0.9", pod == "owned")
	}
	r.set(func(c *fakeCluster) { c.evict = errors.New("its disruption budget does not allow it") })
	want := append(append([]string{
		"NetworksStillMissing of app/bare: The pod is not evicted: no controller would make it anew",
		"NetworksStillMissing of app/owned: The pod still lacks networks that it selects: its disruption budget does not allow it",
		"eviction of app/owned",
	}, said("bare")...), said("owned")...)
	slices.Sort(want)
	r.Same("refused", want, s.finds(0))
	r.set(func(c *fakeCluster) { c.evict = nil })
	r.Same("allowed", []string{"eviction of app/owned"}, s.finds(time.Minute))
	r.metricsSay("multus_strays 2", `multus_stray_heals_total{outcome="failed",policy="restart"} 1`, `multus_stray_heals_total{outcome="ok",policy="restart"} 1`)
}

func TestI5_StraysAreAttachedLate(t *testing.T) {
	r := careFor(t, true, nil)
	r.running.d.Config.MultusNamespace = "kube-system"
	s := r.strays("attach")
	r.set(func(c *fakeCluster) {
		c.nads["app/a"] = `{"cniVersion":"1.0.0","name":"a","type":"fake","subnets":["10.1.0.0/24"]}`
		c.nads["app/b"] = `{"cniVersion":"1.0.0","name":"b","type":"fake","subnets":["10.2.0.0/24"]}`
	})
	r.put("web", "u-web", `[{"name":"a"},{"name":"b","default-route":["10.2.0.1"]},{"name":"b","interface":"b0"}]`)
	r.life("web", audit.Running, "10.0.0.9", true)
	r.crew["u-web"] = attach.Sandbox{ContainerID: "now", NetNS: r.namespace("now")}
	r.host.On("ADD b", fakehost.Fail(errors.New("no address left")))
	status := func(more string) string {
		return `status of app/web u-web: [{ "name": "", "interface": "eth0", "ips": [ "10.0.0.9" ], "default": true, "dns": {} }` + more + `]`
	}
	const a = `,{ "name": "app/a", "interface": "net1", "ips": [ "10.1.0.2" ], "mac": "02:00:0a:01:00:02", "dns": {} }`
	first := s.finds(0)
	r.Same("one of two", true, slices.Contains(first, "event on app/web: net1 [10.1.0.2/24] from app/a") &&
		slices.ContainsFunc(first, func(line string) bool {
			return strings.HasPrefix(line, "NetworksStillMissing of app/web: The pod still lacks") && strings.HasSuffix(line, "no address left")
		}) && slices.Contains(first, status(a)))
	r.host.On("ADD b", nil)
	second := s.finds(time.Minute)
	r.Same("the rest", []string{
		"NetworksStillMissing of app/web: The pod must be made anew for what it cannot get late: app/b (it has the default route)",
		"event on app/web: b0 [10.2.0.2/24] from app/b",
		"event on app/web: net1 [10.1.0.2/24] from app/a",
		"networks of app/web: it cannot get late: app/b (it has the default route)",
		status(a + `,{ "name": "app/b", "interface": "b0", "ips": [ "10.2.0.2" ], "mac": "02:00:0a:02:00:02", "dns": {} }`),
	}, second)
	r.Same("for good", []string(nil), s.finds(time.Hour))
	r.metricsSay("multus_strays 0", `multus_stray_heals_total{outcome="failed",policy="attach"} 1`, `multus_stray_heals_total{outcome="ok",policy="attach"} 1`)
	rec, err := r.running.d.ledger.Load("now")
	r.Must(err)
	var recorded []string
	for _, at := range rec.Plan.Attachments {
		recorded = append(recorded, at.Network+" "+at.Interface)
	}
	r.Same("recorded", []string{"app/a net1", "app/b b0"}, recorded)
}

// An ADD that ends while the API is asked is no stray's.
func TestR1NoStrayWhileItsAddEnds(t *testing.T) {
	r := careFor(t, false, nil)
	s := r.strays("report")
	r.put("web", "u-web", "lan")
	r.life("web", audit.Running, "10.0.0.9", true)
	r.set(func(c *fakeCluster) {
		c.asked = func(plan.Pod) {
			r.record("now", "web")
			r.namespace("now")
		}
	})
	r.Same("said", []string(nil), s.finds(0))
	r.Same("suspected", []string(nil), s.finds(time.Minute))
	r.Same("suspects", 0, len(s.suspects))
}
