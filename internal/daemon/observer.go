package daemon

import (
	"time"

	"github.com/multus-thick/multus/internal/confgen"
)

// configObserver tells of the generated configuration, in the log, in metrics and in events.
type configObserver struct {
	confgen.LogObserver
	metrics *metrics
	cluster Cluster
}

// Written is confgen.Observer's.
func (o *configObserver) Written(path string) {
	o.metrics.config.WithLabelValues(byMultus).Inc()
	o.LogObserver.Written(path)
}

// Foreign is confgen.Observer's.
func (o *configObserver) Foreign(change string, restoreIn time.Duration) {
	o.metrics.config.WithLabelValues(byOther).Inc()
	o.LogObserver.Foreign(change, restoreIn)
	o.cluster.Disturbed(change + "; Multus puts it right")
}

// Shadowed is confgen.Observer's.
func (o *configObserver) Shadowed(by string) {
	o.LogObserver.Shadowed(by)
	o.cluster.Disturbed(by + " goes before the generated configuration, so the runtime does not call Multus")
}

// Lost is confgen.Observer's.
func (o *configObserver) Lost(what string, withdrawn bool) {
	o.LogObserver.Lost(what, withdrawn)
	if withdrawn {
		o.cluster.Disturbed(what + " is gone, so the generated configuration is withdrawn")
	}
}
