package daemon

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/confgen"
)

// metrics are the daemon's own, in a registry of their own.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	operations *prometheus.HistogramVec
	delegates  *prometheus.HistogramVec
	patches    *prometheus.CounterVec
	config     *prometheus.CounterVec
}

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
	}
	m.registry.MustRegister(m.requests, m.operations, m.delegates, m.patches, m.config,
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
	gauge("multus_ready", "Whether the daemon is ready (1) or not (0).", func() float64 {
		if d.notReady() == "" {
			return 1
		}
		return 0
	})
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) observe(r api.Report) {
	code := "0"
	if r.Error != nil {
		code = strconv.FormatUint(uint64(r.Error.Code), 10)
	}
	m.operations.WithLabelValues(r.Verb, code).Observe(seconds(r.Millis))
	if r.Verb != "ADD" {
		return
	}
	for _, a := range r.Attachments {
		outcome := "ok"
		if a.Failed {
			outcome = "failed"
		}
		if len(a.Plugins) > 0 {
			m.delegates.WithLabelValues(a.Plugins[0], outcome).Observe(seconds(a.Millis))
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

// metricsHandler is what the metrics port serves.
func (d *Daemon) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(api.PathMetrics, d.metrics.handler())
	d.addHealth(mux)
	if d.Config.EnablePprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// configObserver tells of the generated configuration, in the log and in metrics.
type configObserver struct {
	log     *slog.Logger
	metrics *metrics
}

func (o *configObserver) Chosen(c confgen.Choice) {
	o.log.Info("the primary network is chosen", "file", c.Name, "network", c.Config.Name(), "why", c.Why)
}

func (o *configObserver) Skipped(s confgen.Skipped) {
	o.log.Warn("not a primary network", "file", s.Name, "why", s.Reason)
}

func (o *configObserver) Written(path string) {
	o.metrics.config.WithLabelValues("multus").Inc()
	o.log.Info("the generated configuration is in place", "file", path)
}

func (o *configObserver) Waiting(reason string) {
	o.log.Warn("nothing can be generated now", "why", reason)
}

func (o *configObserver) Lost(what string, withdrawn bool) {
	o.log.Error("the generated configuration has lost its ground", "what", what, "withdrawn", withdrawn)
}

func (o *configObserver) Foreign(change string, restoreIn time.Duration) {
	o.metrics.config.WithLabelValues("other").Inc()
	o.log.Error("another program changed the generated configuration", "change", change, "restored in", restoreIn.String())
}

func (o *configObserver) Shadowed(by string) {
	o.log.Error("another configuration goes before the generated one, so the runtime does not call Multus", "file", by)
}

func (o *configObserver) Failed(err error) {
	o.log.Error("the generated configuration", "error", strings.TrimSpace(err.Error()))
}
