package daemon

import (
	"net/http"
	"path/filepath"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/version"
)

// handleState tells people how this daemon sees its node.
func (d *Daemon) handleState(w http.ResponseWriter, _ *http.Request) {
	state := api.State{
		Version: version.Get().String(), NotReady: d.notReady(),
		InFlight: d.admission.inFlight(), Waiting: d.admission.waiting.Load(), Ledger: d.here(),
	}
	if d.watcher != nil {
		is := d.watcher.State()
		state.Primary = api.StatePrimary{Network: is.Choice.Config.Name(), Why: is.Why}
		if is.Choice.Name != "" {
			state.Primary.File = filepath.Join(d.Config.MultusAutoconfigDir, is.Choice.Name)
		}
	}
	api.WriteJSON(w, http.StatusOK, state)
}
