// Command multus-shim is the CNI plugin of the thick installation: the runtime runs
// it on the host, it asks the node's daemon for the plan and carries it out.
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
	"github.com/multus-thick/multus/internal/version"
)

func main() {
	debug.SetGCPercent(800) // one short run: what it allocates is less than collecting costs
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := func(cfg *config.Config) (*slog.Logger, io.Closer) { return logging.ForPlugin(cfg, os.Stderr, false) }
	os.Exit(shim.Command(ctx, "multus-shim", version.String("multus-shim"), shim.Plugin{
		Planner: shim.Remote, Logger: logger, Environ: os.Environ(), BootID: ledger.BootID(),
	}))
}
