package confgen

import (
	"log/slog"
	"strings"
	"time"
)

// LogObserver is an Observer that logs.
type LogObserver struct{ Log *slog.Logger }

// Chosen implements Observer.
func (o LogObserver) Chosen(c Choice) {
	o.Log.Info("the primary network is chosen", "file", c.Name, "network", c.Config.Name(), "why", c.Why)
}

// Skipped implements Observer.
func (o LogObserver) Skipped(s Skipped) {
	o.Log.Warn("not a primary network", "file", s.Name, "why", s.Reason)
}

// Written implements Observer.
func (o LogObserver) Written(path string) {
	o.Log.Info("the file is in place", "file", path)
}

// Removed implements Observer.
func (o LogObserver) Removed(path string) {
	o.Log.Info("the configuration of another installation of Multus is removed", "file", path)
}

// Waiting implements Observer.
func (o LogObserver) Waiting(reason string) {
	o.Log.Warn("nothing can be generated now", "why", reason)
}

// Lost implements Observer.
func (o LogObserver) Lost(what string, withdrawn bool) {
	o.Log.Error("the generated configuration has lost its ground", "what", what, "withdrawn", withdrawn)
}

// Foreign implements Observer.
func (o LogObserver) Foreign(change string, restoreIn time.Duration) {
	o.Log.Error("another program changed the generated configuration", "change", change, "restored in", restoreIn.String())
}

// Shadowed implements Observer.
func (o LogObserver) Shadowed(by string) {
	o.Log.Error("another configuration goes before the generated one, so the runtime does not call Multus", "file", by)
}

// Failed implements Observer.
func (o LogObserver) Failed(err error) {
	o.Log.Error("the generated configuration", "error", strings.TrimSpace(err.Error()))
}
