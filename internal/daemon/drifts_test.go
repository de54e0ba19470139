package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/multus-thick/multus/internal/attach"
)

// Each pod once in checkInterval; what is so still is told once, and counted on.
func TestI5_DriftIsTold(t *testing.T) {
	for policy, want := range map[string][]string{
		"report": {"NetworkDrift of app/web: Of the network lan the interface eth0 has lost the address 10.0.0.7/24"},
		"repair": {"NetworkDrift of app/web: Of the network lan the interface eth0 has lost the address 10.0.0.7/24; it has been put right"},
	} {
		r := careFor(t, true, map[string]any{"checkInterval": 0.02})
		r.record("c1", "web")
		r.namespace("c1")
		r.host.SetLink("/run/netns/c1", "eth0", &attach.Facts{Up: true, Addresses: nil})
		c := &drifts{caretaker: r.caretaker, watch: attach.Watch{Engine: r.engine, Mend: policy == checkRepair}}
		for range 2 {
			r.Must(c.round(t.Context()))
		}
		r.Same(policy, want, r.heard())
		repaired, left := "no", "1"
		if policy == checkRepair {
			repaired, left = "yes", "0"
		}
		r.metricsSay("multus_drift "+left, `multus_drift_total{aspect="address",repaired="`+repaired+`"} 1`)
	}
}

// A daemon that cannot look says so, once, and does not look.
func TestI5_NoChecksWithoutTheHost(t *testing.T) {
	var log bytes.Buffer
	r := careFor(t, false, nil)
	r.running.d.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, interval := range []time.Duration{0, time.Nanosecond} {
		r.running.d.Config.CheckInterval = interval
		(&drifts{caretaker: r.caretaker}).run(t.Context())
	}
	r.Same("lines", 1, strings.Count(log.String(), "checkInterval"))
	r.running.d.Config.Strays = "attach"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	(&strays{caretaker: r.caretaker}).run(ended)
	r.Same("lines", 1, strings.Count(log.String(), "strays are reported only"))
}
