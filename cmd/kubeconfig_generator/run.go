package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/logging"
	"github.com/multus-thick/multus/internal/nodecert"
)

// patience is how long the first certificate is waited for (contract 1.16).
const patience = 2 * time.Minute

// look is how often it is looked for.
const look = 100 * time.Millisecond

func run(ctx context.Context, args []string, stderr io.Writer) int {
	log, _ := logging.New(&config.Config{LogLevel: "verbose"}, stderr, true)
	set := pflag.NewFlagSet("kubeconfig_generator", pflag.ContinueOnError)
	set.SetOutput(stderr)
	o := nodecert.Options{Node: os.Getenv("MULTUS_NODE_NAME"), Log: log}
	set.StringVar(&o.Dir, "certdir", "/tmp", "folder in which the certificate is kept")
	set.StringVar(&o.Bootstrap, "bootstrap-config", "/tmp/kubeconfig", "kubeconfig with which the certificate is asked for")
	set.DurationVar(&o.Duration, "cert-duration", 10*time.Minute, "how long a certificate is asked for")
	out := set.String("kubeconfig", "/run/multus/kubeconfig", "kubeconfig that is written")
	err := set.Parse(args)
	switch {
	case err != nil:
	case set.Arg(0) == "readycheck": // a probe, in an image without a shell
		err = nodecert.Check(o)
	default:
		err = generate(ctx, o, *out)
	}
	if err == nil {
		return 0
	}
	if !errors.Is(err, pflag.ErrHelp) { // asked for help: exit 1 all the same, as in v4
		fmt.Fprintln(stderr, "kubeconfig_generator:", err)
	}
	return 1
}

// generate keeps the certificate until ctx ends, and the kubeconfig from the first
// certificate on. Both stay then, for the plugin is called also while the pod is replaced: v4
// removed the kubeconfig.
func generate(ctx context.Context, o nodecert.Options, out string) error {
	keeper, err := nodecert.New(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { keeper.Run(ctx) })
	defer keeping.Wait()
	defer stop()
	if err := first(ctx, keeper); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := keeper.WriteKubeconfig(out); err != nil {
		return err
	}
	keeper.KeepKubeconfig(ctx, out)
	return nil
}

// first waits for the first certificate.
func first(ctx context.Context, keeper *nodecert.Keeper) error {
	timeout := time.After(patience)
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		problem := keeper.Problem()
		if problem == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timeout:
			return fmt.Errorf("waited for %s: %w", patience, problem)
		case <-ticker.C:
		}
	}
}
