package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/version"
)

// TestI4_State: what multusctl shows of the daemon, before and after the primary network
// is there.
func TestI4_State(t *testing.T) {
	r := prepare(t, nil)
	r.Must(os.Mkdir(r.path("net.d"), 0o755))
	text := fmt.Sprintf(`{"cniDir":%q,"socketDir":%q,"cniConfigDir":%q,"multusAutoconfigDir":%q,"multusConfigFile":"auto","cniVersion":"1.0.0"}`,
		r.path("state"), r.dir, r.path("net.d"), r.path("net.d"))
	cfg, _, err := config.Parse([]byte(text))
	r.Must(err)
	r.d, err = New(Options{Config: cfg, ConfigFile: []byte(text), Cluster: r.fakeCluster, Log: slog.New(slog.DiscardHandler), BootID: "boot", Generate: true})
	r.Must(err)
	r.start()
	place, err := ledger.New(r.path("state"), "boot").Place()
	r.Must(err)
	state := func() (s api.State) {
		status, text := r.http(http.MethodGet, api.PathState, "")
		r.Same("status", 200, status)
		r.Must(json.Unmarshal([]byte(text), &s))
		return s
	}
	why := "waiting for a primary network's configuration (.conf or .conflist) in " + r.path("net.d")
	r.Eventually("it has looked", func() bool { return state().NotReady == why })
	want := api.State{Version: version.Get().String(), NotReady: why, Primary: api.StatePrimary{Why: why}, Ledger: place}
	r.Same("state", want, state())

	r.Must(os.Rename(r.path("10-primary.conf"), r.path("net.d/10-primary.conf")))
	r.Eventually("it is ready", func() bool { return state().NotReady == "" })
	r.put("web", "u", "")
	c := r.client()
	_, err = r.plan(c, r.request("web"))
	r.Must(err)
	want.NotReady, want.InFlight = "", 1
	want.Primary = api.StatePrimary{File: r.path("net.d/10-primary.conf"), Network: "primary", Why: "the first valid configuration by name in " + r.path("net.d")}
	r.Same("state", want, state())
	c.Close()
}
