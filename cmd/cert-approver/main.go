// Command cert-approver approves the client certificates of nodes' Multus (contract 1.2,
// 1.16). It has no flags and runs in the cluster.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/approver"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	err := approve(ctx, args, stderr)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "cert-approver:", err)
	return 1
}

func approve(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("the arguments are %q: want none", args)
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("the service account of the pod is needed: %w", err)
	}
	cfg.QPS, cfg.Burst = 50, 100 // a thousand nodes renew within eight minutes; client-go's own limit is 5
	log, _ := logging.New(&config.Config{LogLevel: "verbose"}, stderr, true)
	a, err := approver.New(cfg, log)
	if err != nil {
		return err
	}
	a.Run(ctx)
	return nil
}
