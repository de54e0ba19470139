// Command multusctl looks into Multus: it tries a folder of networks and pods out
// without a cluster, and shows plans.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/multus-thick/multus/internal/multusctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(multusctl.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
