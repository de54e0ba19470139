// Command multus is the thin plugin: the runtime runs it on the host, and it asks
// the API server itself.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/logging"
	"github.com/multus-thick/multus/internal/shim"
	"github.com/multus-thick/multus/internal/thin"
	"github.com/multus-thick/multus/internal/version"
)

func main() {
	debug.SetGCPercent(800) // one short run: what it allocates is less than collecting costs
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := func(cfg *config.Config) (*slog.Logger, io.Closer) { return logging.ForPlugin(cfg, os.Stderr, true) }
	cluster := thin.Cluster{Host: os.Getenv("KUBERNETES_SERVICE_HOST"), Port: os.Getenv("KUBERNETES_SERVICE_PORT")}
	os.Exit(shim.Command(ctx, "multus", version.String("multus"), shim.Plugin{
		Planner: cluster.Planner, Logger: logger, Environ: os.Environ(), BootID: ledger.BootID(), AlwaysAsk: true,
	}))
}
