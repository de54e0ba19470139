package daemon

import (
	"time"

	"github.com/multus-thick/multus/internal/confgen"
)

// configObserver tells of the generated configuration, in the log and in metrics.
type configObserver struct {
	confgen.LogObserver
	metrics *metrics
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
}
