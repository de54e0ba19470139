package daemon

import (
	"log/slog"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/confgen"
)

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
	o.metrics.config.WithLabelValues(byMultus).Inc()
	o.log.Info("the generated configuration is in place", "file", path)
}

func (o *configObserver) Waiting(reason string) {
	o.log.Warn("nothing can be generated now", "why", reason)
}

func (o *configObserver) Lost(what string, withdrawn bool) {
	o.log.Error("the generated configuration has lost its ground", "what", what, "withdrawn", withdrawn)
}

func (o *configObserver) Foreign(change string, restoreIn time.Duration) {
	o.metrics.config.WithLabelValues(byOther).Inc()
	o.log.Error("another program changed the generated configuration", "change", change, "restored in", restoreIn.String())
}

func (o *configObserver) Shadowed(by string) {
	o.log.Error("another configuration goes before the generated one, so the runtime does not call Multus", "file", by)
}

func (o *configObserver) Failed(err error) {
	o.log.Error("the generated configuration", "error", strings.TrimSpace(err.Error()))
}
