package daemon

import (
	"math"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/hotplug"
	"github.com/multus-thick/multus/internal/version"
)

// metrics are the daemon's own, in a registry of their own.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	operations *prometheus.HistogramVec
	delegates  *prometheus.HistogramVec
	patches    *prometheus.CounterVec
	config     *prometheus.CounterVec
	waits      prometheus.Histogram
	rejected   *prometheus.CounterVec
	hotplugs   *prometheus.CounterVec
	careMetrics
	// What delegates are called and what they answer is not ours to bound.
	plugins, codes vocabulary
}

// maxWords bounds the values of a label that come from outside.
const maxWords = 50

// vocabulary is the first values of a label; later ones are "other".
type vocabulary struct {
	mu    sync.Mutex
	words map[string]bool
}

func (v *vocabulary) word(w string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.words == nil {
		v.words = map[string]bool{}
	}
	if !v.words[w] && len(v.words) >= maxWords {
		return byOther
	}
	v.words[w] = true
	return w
}

// Values of labels.
const (
	byMultus         = "multus"
	byOther          = "other"
	rejectedLeft     = "left"
	rejectedDraining = "draining"
)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "multus_server_request_total", Help: "Requests to the daemon's socket.",
		}, []string{"handler", "code", "method"}),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "multus_operation_duration_seconds", Help: "Duration of CNI operations on this node, by verb and CNI error code (0 for success).",
			Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 10),
		}, []string{"verb", "code"}),
		delegates: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "multus_delegate_duration_seconds", Help: "Duration of the ADD of one network, by the type of its first plugin and outcome.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 10),
		}, []string{"plugin", "outcome"}),
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "multus_status_patches_total", Help: "Ended attempts to write a pod's network-status.",
		}, []string{"outcome"}),
		config: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "multus_config_changes_total", Help: "Changes of the generated configuration: written by the daemon, or by another program.",
		}, []string{"by"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "multus_add_wait_seconds", Help: "How long ADDs waited until they were admitted.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "multus_adds_rejected_total", Help: "ADDs that were not admitted: their caller left or ran out of time (left), or the daemon shut down (draining).",
		}, []string{"reason"}),
	}
	m.hotplugs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "multus_hotplug_operations_total", Help: "Networks that were attached to, or detached from, running pods because their annotation changed.",
	}, []string{"operation", "outcome"})
	for _, operation := range []hotplug.Operation{hotplug.Attach, hotplug.Detach} {
		for _, outcome := range []hotplug.Outcome{hotplug.OK, hotplug.Failed} {
			m.hotplugs.WithLabelValues(string(operation), string(outcome))
		}
	}
	// What has not happened yet is 0 and not absent, so that alerts can count from there.
	for _, outcome := range []string{"ok", "failed"} {
		m.patches.WithLabelValues(outcome)
	}
	for _, by := range []string{byMultus, byOther} {
		m.config.WithLabelValues(by)
	}
	for _, reason := range []string{rejectedLeft, rejectedDraining} {
		m.rejected.WithLabelValues(reason)
	}
	m.careMetrics.register(m.registry)
	build := version.Get()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "multus_build_info", Help: "1, with what this daemon was built from.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(m.requests, m.operations, m.delegates, m.patches, m.config, m.waits, m.rejected, m.hotplugs, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// watch adds what is read from the daemon when somebody looks.
func (m *metrics) watch(d *Daemon) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("multus_adds_in_flight", "Admitted ADDs that have not reported yet.", func() float64 { return float64(d.admission.inFlight()) })
	gauge("multus_adds_waiting", "ADDs that wait to be admitted.", func() float64 { return float64(d.admission.waiting.Load()) })
	gauge("multus_status_pending", "Statuses that wait to be written.", func() float64 { return float64(d.publisher.waiting()) })
	gauge("multus_hotplug_differences", "Networks that running pods select and lack, or have and do not select, because it failed.", func() float64 {
		all, _ := d.differences()
		return float64(all)
	})
	gauge("multus_optional_missing", "Optional networks that running pods lack.", func() float64 {
		_, optional := d.differences()
		return float64(optional)
	})
	gauge("multus_ready", "Whether the daemon is ready (1) or not (0).", func() float64 {
		if d.notReady() == "" {
			return 1
		}
		return 0
	})
	gauge("multus_cache_age_seconds", "How long ago the daemon's memory of pods and networks was known to follow the API; +Inf before the first time.", func() float64 {
		last := d.Cluster.LastSync()
		if last.IsZero() {
			return math.Inf(1)
		}
		return max(0, time.Since(last).Seconds())
	})
	m.registry.MustRegister(newInventory(d))
}

func (m *metrics) handler() http.Handler {
	// Each scrape reads the whole ledger, and anybody may ask.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 1})
}

func (m *metrics) observe(r api.Report) {
	code := "0"
	if r.Error != nil {
		code = strconv.FormatUint(uint64(r.Error.Code), 10)
	}
	m.operations.WithLabelValues(r.Verb, m.codes.word(code)).Observe(seconds(r.Millis))
	if r.Verb != "ADD" {
		return
	}
	for _, a := range r.Attachments {
		outcome := "ok"
		if a.Failed {
			outcome = "failed"
		}
		if len(a.Plugins) > 0 {
			m.delegates.WithLabelValues(m.plugins.word(a.Plugins[0]), outcome).Observe(seconds(a.Millis))
		}
	}
}

func seconds(millis int64) float64 { return (time.Duration(millis) * time.Millisecond).Seconds() }

func (m *metrics) published(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.patches.WithLabelValues(outcome).Inc()
}

// counted counts the requests of a handler as Multus v4 does (contract 1.11).
func (d *Daemon) counted(name string, h http.HandlerFunc) http.Handler {
	return promhttp.InstrumentHandlerCounter(d.metrics.requests.MustCurryWith(prometheus.Labels{"handler": name}), h)
}

// metricsHandler is what the metrics port serves. Health is for everybody: it says no
// more than that, and the kubelet has no token to show.
func (d *Daemon) metricsHandler() http.Handler {
	guarded := http.NewServeMux()
	guarded.Handle(api.PathMetrics, d.metrics.handler())
	if d.Config.EnablePprof {
		guarded.HandleFunc("/debug/pprof/", pprof.Index)
		guarded.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		guarded.HandleFunc("/debug/pprof/profile", pprof.Profile)
		guarded.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		guarded.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	mux := http.NewServeMux()
	mux.Handle("/", d.guard.protect(guarded))
	d.addHealth(mux)
	return mux
}
