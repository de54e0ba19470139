// Command kubeconfig_generator keeps a client certificate of its node, and writes a
// kubeconfig that names it, for the thin plugin (contract 1.2, 1.16). It is a sidecar.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}
