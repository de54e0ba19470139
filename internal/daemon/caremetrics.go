package daemon

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/multus-thick/multus/internal/attach"
)

// careMetrics are of what the daemon looks after. The gauges are of the last look.
type careMetrics struct {
	orphans map[attach.Origin]*atomic.Int64
	collect *prometheus.CounterVec
	strays  *atomic.Int64
	healing *prometheus.CounterVec
	drift   *atomic.Int64
	drifts  *prometheus.CounterVec
}

func outcomeOf(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

func (m *careMetrics) register(r *prometheus.Registry) {
	gauge := func(name, help string, labels prometheus.Labels) *atomic.Int64 {
		n := new(atomic.Int64)
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(n.Load()) }))
		return n
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	m.orphans = map[attach.Origin]*atomic.Int64{}
	for origin, kind := range map[attach.Origin]string{attach.Ours: "record", attach.FromV4: "v4", attach.Cache: "result"} {
		m.orphans[origin] = gauge("multus_orphans", "What was found of sandboxes that nobody owns, and was not given back by then: records, files of Multus v4, results of libcni.", prometheus.Labels{"kind": kind})
	}
	m.collect = counter("multus_orphans_collected_total", "Orphans that were given back, by outcome.", "outcome")
	m.strays = gauge("multus_strays", "Running pods that select networks and were never attached.", nil)
	m.healing = counter("multus_stray_heals_total", "Strays that were attached late or evicted, by outcome.", "policy", "outcome")
	m.drift = gauge("multus_drift", "Differences between pods' interfaces and what they were given, that are so still.", nil)
	m.drifts = counter("multus_drift_total", "Differences that were found between pods' interfaces and what they were given, by aspect, and whether they were put right.", "aspect", "repaired")
	for _, outcome := range []string{"ok", "failed"} {
		m.collect.WithLabelValues(outcome)
		for _, policy := range []string{straysAttach, straysRestart} {
			m.healing.WithLabelValues(policy, outcome)
		}
	}
	for _, aspect := range []attach.Aspect{attach.OfLink, attach.OfMAC, attach.OfAddress, attach.OfRoute, attach.OfState} {
		m.drifts.WithLabelValues(string(aspect), "no")
	}
}

func (m *careMetrics) cleaned(err error) { m.collect.WithLabelValues(outcomeOf(err)).Inc() }

func (m *careMetrics) heals(policy string, err error) {
	m.healing.WithLabelValues(policy, outcomeOf(err)).Inc()
}

func (m *careMetrics) drifted(d attach.Drift) {
	repaired := "no"
	if d.Mended {
		repaired = "yes"
	}
	m.drifts.WithLabelValues(string(d.Aspect), repaired).Inc()
}
