package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// publishing is a daemon in a bubble of its own time, without a socket, whose
// publisher runs on a ledger.
type publishing struct {
	check.T
	*fakeCluster
	d     *Daemon
	stop  context.CancelFunc
	ended chan struct{}
}

func publish(t *testing.T) *publishing {
	t.Helper()
	p := &publishing{T: check.T{T: t}, fakeCluster: newCluster(), ended: make(chan struct{})}
	var err error
	p.d, err = New(Options{Config: &config.Config{CNIDir: filepath.Join(t.TempDir(), "state")}, Cluster: p.fakeCluster, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	p.d.publisher.start(ctx)
	go func() {
		defer close(p.ended)
		if err := p.d.publisher.run(ctx, p.d.recorded); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-p.ended
	})
	synctest.Wait()
	return p
}

// report hands a report to the handler; done gets the answer.
func (p *publishing) report(ctx context.Context, r api.Report) <-chan api.ReportResponse {
	p.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		p.Fatal(err)
	}
	req := httptest.NewRequestWithContext(context.WithValue(ctx, placeKey{}, &place{admit: p.d.admission}), http.MethodPost, api.PathReport, bytes.NewReader(raw))
	done := make(chan api.ReportResponse, 1)
	go func() {
		defer close(done)
		w := httptest.NewRecorder()
		p.d.handleReport(w, req)
		var answer api.ReportResponse
		if json.Unmarshal(w.Body.Bytes(), &answer) == nil {
			done <- answer
		}
	}()
	synctest.Wait()
	return done
}

// record puts a sandbox with the primary network on the ledger, as old as age.
func (p *publishing) record(containerID, pod, uid string, age time.Duration, change func(*attach.Record)) {
	p.Helper()
	conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"primary","type":"bridge"}`))
	if err != nil {
		p.Fatal(err)
	}
	rec := attach.Record{
		State: attach.Attached, Created: time.Now().Add(-age), Sandbox: attach.Sandbox{ContainerID: containerID},
		Plan: plan.Plan{
			Version: plan.Version, Pod: plan.Pod{Namespace: "app", Name: pod, UID: uid},
			Attachments: []plan.Attachment{{Role: plan.Primary, Network: "primary", Interface: "eth0", Config: conf}},
		},
		Outcomes: []attach.Outcome{{Result: []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],"ips":[{"address":"10.1.0.2/24","interface":0}]}`)}},
	}
	if change != nil {
		change(&rec)
	}
	if err := ledger.New(p.d.Config.CNIDir, "").Save(rec, false); err != nil {
		p.Fatal(err)
	}
}

// patched are the pods whose status was written since the last look, with their UID.
func (p *publishing) patched() (pods []string) {
	for _, line := range p.heard() {
		if text, isStatus := strings.CutPrefix(line, "status of "); isStatus {
			pod, _, _ := strings.Cut(text, ": ")
			pods = append(pods, pod)
		}
	}
	return pods
}

// slow makes a patch take so long.
func (p *publishing) slow(takes time.Duration) {
	p.set(func(c *fakeCluster) {
		c.patch = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(takes):
				return nil
			}
		}
	})
}

// TestT19StatusThatTakesLong: its report is answered after 5 s, and it is written
// all the same; a quicker one's is answered when it is written.
func TestT19StatusThatTakesLong(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		after     time.Duration
		published bool
	}{
		0: {0, true}, 3 * time.Second: {3 * time.Second, true}, 20 * time.Second: {5 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t)
			p.slow(takes)
			began := time.Now()
			answer := <-p.report(t.Context(), attached("web"))
			p.Same(fmt.Sprintf("published, after %v", takes), want.published, answer.Published)
			p.Same("answered after", want.after, time.Since(began))
			time.Sleep(takes)
			synctest.Wait()
			p.Same("written", []string{"app/web u"}, p.patched())
		})
	}
}

// TestT19CallerLeaves: the status is written without it.
func TestT19CallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.slow(20 * time.Second)
		ctx, leave := context.WithCancel(t.Context())
		done := p.report(ctx, attached("web"))
		leave()
		<-done // whatever it holds, nobody reads it
		time.Sleep(20 * time.Second)
		synctest.Wait()
		p.Same("written", []string{"app/web u"}, p.patched())
	})
}

// TestT19NewerStatus takes the place of the same pod's older one, and of no other's.
func TestT19NewerStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.slow(2 * time.Second)
		older := p.report(t.Context(), attached("web"))
		other := p.report(t.Context(), attached("other"))
		p.Same("pending", 2, p.d.publisher.waiting())
		time.Sleep(time.Second)
		next := attached("web")
		next.Pod.UID = "u2"
		newer := p.report(t.Context(), next)
		p.Same("published", []bool{false, true, true}, []bool{(<-older).Published, (<-other).Published, (<-newer).Published})
		p.Same("written", []string{"app/other u", "app/web u2"}, p.patched())
		p.Same("pending", 0, p.d.publisher.waiting())
	})
}

// TestT19NewerStatusOfTheSamePod: who waits for the older one is told of the newer one's
// end, and nothing has failed.
func TestT19NewerStatusOfTheSamePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.slow(2 * time.Second)
		older := p.report(t.Context(), attached("web"))
		time.Sleep(time.Second)
		newer := p.report(t.Context(), attached("web"))
		p.Same("published", []bool{true, true}, []bool{(<-older).Published, (<-newer).Published})
		p.Same("written", []string{"app/web u"}, p.patched())
		w := httptest.NewRecorder()
		p.d.metrics.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if text := w.Body.String(); !strings.Contains(text, `multus_status_patches_total{outcome="failed"} 0`) || !strings.Contains(text, `multus_status_patches_total{outcome="ok"} 1`) {
			t.Errorf("the metrics:\n%s", text)
		}
	})
}

// TestT9PublisherStops: what is not written by then is left to the next daemon.
func TestT9PublisherStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.slow(time.Hour)
		done := p.report(t.Context(), attached("web"))
		p.stop()
		p.Same("published", false, (<-done).Published)
		<-p.ended
		p.Same("published, after the end", false, (<-p.report(t.Context(), attached("web"))).Published)
		if err := <-p.d.publisher.publish(plan.Pod{Namespace: "app", Name: "web"}, "[]"); !errors.Is(err, errNotRunning) {
			t.Errorf("got %v", err)
		}
		p.Same("written", []string(nil), p.patched())
	})
}

const statusOfPrimary = `[{"name":"primary","interface":"eth0","ips":["10.1.0.2"],"default":true,"dns":{}}`

// TestT19CatchUp: what the ledger holds and the pod does not say is published.
func TestT19CatchUp(t *testing.T) {
	for name, c := range map[string]struct {
		status string // the pod's annotation
		pod    func(*gather.Pod)
		record func(*attach.Record)
		age    time.Duration // an hour where 0
		want   []string
	}{
		"no annotation":            {want: []string{"app/web u"}},
		"another address":          {status: `[{"name":"primary","interface":"eth0","ips":["10.1.0.9"],"default":true,"dns":{}}]`, want: []string{"app/web u"}},
		"no status at all":         {status: `nonsense`, want: []string{"app/web u"}},
		"it says so":               {status: statusOfPrimary + `]`},
		"with a plugged one":       {status: statusOfPrimary + `,{"name":"app/hot","interface":"net9","ips":["10.9.0.2"],"dns":{}}]`},
		"the pod was made anew":    {pod: func(p *gather.Pod) { p.UID = "u2" }},
		"a static pod's mirror":    {pod: func(p *gather.Pod) { p.UID, p.Static = "mirror", true }, want: []string{"app/web mirror"}},
		"its report is on the way": {age: time.Second},
		"its ADD is under way":     {record: func(r *attach.Record) { r.State = attach.Intent }},
		"its DEL has begun":        {record: func(r *attach.Record) { r.State = attach.Detaching }},
		"the pod is gone":          {record: func(r *attach.Record) { r.Plan.Pod.Name = "gone" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := publish(t)
				p.put("web", "u", "")
				pod := p.pods["app/web"]
				if c.status != "" {
					pod.Annotations[netspec.AnnotationStatus] = c.status
				}
				if c.pod != nil {
					c.pod(&pod)
				}
				p.pods["app/web"] = pod
				age := c.age
				if age == 0 {
					age = time.Hour
				}
				p.record("c1", "web", "u", age, c.record)
				time.Sleep(time.Second)
				synctest.Wait()
				p.Same("written", c.want, p.patched())
			})
		})
	}
}

// TestT19CatchUpGoesOn: it begins when the caches are there, and repeats what is not
// said yet once a minute.
func TestT19CatchUpGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.put("web", "u", "")
		p.record("c1", "web", "u", time.Hour, nil)
		p.set(func(c *fakeCluster) { c.problem = "the pods have not been listed yet" })
		time.Sleep(10 * time.Minute)
		p.Same("written, the caches cold", []string(nil), p.patched())
		p.set(func(c *fakeCluster) { c.problem = "" })
		time.Sleep(2*time.Second + 2*time.Minute)
		synctest.Wait()
		p.Same("written", []string{"app/web u", "app/web u", "app/web u"}, p.patched())
		p.set(func(c *fakeCluster) { c.pods["app/web"].Annotations[netspec.AnnotationStatus] = statusOfPrimary + `]` })
		time.Sleep(10 * time.Minute)
		p.Same("written, once the pod says it", []string(nil), p.patched())
	})
}

// TestT22StaticPod: the report names the manifest's UID, the API has the mirror's.
func TestT22StaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t)
		p.put("web", "mirror", "")
		pod := p.pods["app/web"]
		pod.Static = true
		p.pods["app/web"] = pod
		p.Same("published", true, (<-p.report(t.Context(), attached("web"))).Published)
		p.Same("written", []string{"app/web mirror"}, p.patched())
	})
}
