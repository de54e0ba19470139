package daemon

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/scrape.txt anew")

// scrape is what Prometheus gets. Values that differ from run to run are "_".
func (r *running) scrape() string {
	r.Helper()
	w := httptest.NewRecorder()
	r.d.metricsHandler().ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), http.MethodGet, api.PathMetrics, nil))
	text := w.Body.String()
	for pattern, with := range map[string]string{
		`(?m)^((go|process)_\S*) .*$`:          "$1 _",
		`(commit|goversion|version)="[^"]*"`:   `$1="_"`,
		`(?m)^(multus_cache_age_seconds) \d.*`: "$1 _",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	return text
}

// The whole scrape of a daemon that has done something of everything: what dashboards and
// alerts may use.
func TestI4_Scrape(t *testing.T) {
	r := prepare(t, nil)
	r.put("web", "u-web", "")
	r.set(func(c *fakeCluster) { c.synced = time.Now() })
	r.d.metrics.observe(attached("web"))
	failure := attached("web")
	failure.Error = types.NewError(11, "later", "")
	failure.Attachments[1].Failed = true
	r.d.metrics.observe(failure)
	r.d.metrics.published(nil)
	r.d.metrics.published(errors.New("refused"))
	r.d.metrics.waits.Observe(0.2)
	r.call(http.MethodGet, api.PathHealthz)
	r.keep("c1", "web", attach.Attached, "primary", "app/lan")
	r.keep("c2", "gone", attach.Attached, "primary")
	r.keep("c3", "web", attach.Detaching, "primary")
	r.keep("c4", "web", attach.Intent, "primary")
	r.Must(r.d.ledger.SetAside("c4"))

	const file = "testdata/scrape.txt"
	got := r.scrape()
	if *rewrite {
		r.Must(os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	r.Must(err)
	r.Same("the scrape", string(want), got)
}

// Whoever scrapes often costs no more than a reading of the ledger at a time, which does not
// look at libcni's results, whatever v4 left.
func TestI4_ScrapeReadsOnce(t *testing.T) {
	r := prepare(t, nil)
	r.Must(os.MkdirAll(filepath.Join(r.d.Config.CNIDir, "results"), 0o700))
	for i := range 30 {
		scratch := fmt.Sprintf(`[{"Name":"n","Bytes":%q}]`, base64.StdEncoding.EncodeToString([]byte(`{"name":"n","type":"x"}`)))
		r.Must(os.WriteFile(filepath.Join(r.d.Config.CNIDir, fmt.Sprintf("sandbox-%d", i)), []byte(scratch), 0o600))
	}
	opened := check.Opens(t, filepath.Join(r.d.Config.CNIDir, "results"))
	if text := r.scrape(); !strings.Contains(text, `multus_attachments{network="n"} 30`) {
		t.Errorf("the scrape lacks v4's:\n%s", text)
	}
	r.Same("read by a scrape", []string(nil), opened())
	ours, err := r.d.recorded(t.Context())
	r.Must(err)
	r.Same("records of ours", 0, len(ours))
	r.Same("read by the publisher", []string(nil), opened())

	slow, asked := make(chan struct{}), make(chan struct{}, 2)
	r.d.metrics.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow", Help: "Slow."}, func() float64 {
		asked <- struct{}{}
		<-slow
		return 0
	}))
	handler := r.d.metricsHandler()
	scrape := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodGet, api.PathMetrics, nil))
		return w.Code
	}
	first, second := make(chan int), make(chan int, 1)
	go func() { first <- scrape() }()
	<-asked
	go func() { second <- scrape() }()
	select {
	case code := <-second:
		second <- code
	case <-asked:
		t.Error("two scrapes at once")
	}
	close(slow)
	r.Same("answers", []int{http.StatusOK, http.StatusServiceUnavailable}, []int{<-first, <-second})
}

// TestI4_ScrapeDoesNotWaitForAnEndlessCount: a scrape that comes while very many files are
// counted tells what was counted before.
func TestI4_ScrapeDoesNotWaitForAnEndlessCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, nil)
		r.keep("c1", "web", attach.Attached, "lan")
		i := newInventory(r.d)
		r.Same("the first count", map[string]int{"lan": 1}, i.count().networks)
		r.keep("c2", "db", attach.Attached, "lan")
		i.counting = make(chan struct{}) // as one does that takes longer
		r.Same("meanwhile", map[string]int{"lan": 1}, i.count().networks)
		i.counting = nil
		r.Same("the next", map[string]int{"lan": 2}, i.count().networks)
		i.last, i.counting = nil, make(chan struct{})
		if i.count() != nil {
			t.Error("something is told before anything was counted")
		}
	})
}

// call asks the socket's handlers without a socket.
func (r *running) call(method, path string) {
	r.d.socketServer().Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(r.Context(), method, path, nil))
}

// keep puts a record of a pod into the ledger.
func (r *running) keep(containerID, pod string, state attach.State, networks ...string) {
	r.Helper()
	rec := attach.Record{State: state, Created: time.Now(), Sandbox: attach.Sandbox{ContainerID: containerID}}
	rec.Plan = plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "app", Name: pod, UID: "u-" + pod}}
	for i, network := range networks {
		c, err := cniconf.Parse([]byte(fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"bridge"}`, network)))
		r.Must(err)
		rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Role: plan.Secondary, Network: network, Interface: fmt.Sprintf("net%d", i), Config: c})
	}
	rec.Outcomes = make([]attach.Outcome, len(networks))
	r.Must(r.d.ledger.Save(rec, false))
}

// The label's values are bounded, and no attachment is lost from the sum.
func TestI4_NetworksLabelIsBounded(t *testing.T) {
	r := prepare(t, nil)
	networks := map[string]int{"big": 7}
	want := map[string]int{"big": 7, "other": 3}
	for i := range 102 {
		name := fmt.Sprintf("app/net-%03d", i)
		networks[name] = 1
		if i < 99 {
			want[name] = 1
		}
	}
	r.Same("the largest", want, largest(networks, 100))
	r.Same("few networks", map[string]int{"a": 1}, largest(map[string]int{"a": 1}, 100))
}

func TestI4_WordsOfOthersAreBounded(t *testing.T) {
	var v vocabulary
	got := map[string]int{}
	for i := range 60 {
		got[v.word(fmt.Sprint(i))]++
	}
	if len(got) != maxWords+1 || got[byOther] != 10 || v.word("7") != "7" {
		t.Errorf("%d values, %v", len(got), got)
	}
}
