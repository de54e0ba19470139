// Command thin_entrypoint is the main container of the thin installation. The image
// has it as /entrypoint.sh too, the name by which manifests of Multus v3 start it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/entrypoint"
	"github.com/multus-thick/multus/internal/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	set := pflag.NewFlagSet("thin_entrypoint", pflag.ContinueOnError)
	set.SetOutput(stderr)
	flags := entrypoint.NewFlags(set)
	log, _ := logging.New(&config.Config{LogLevel: "verbose"}, stderr, true)
	err := set.Parse(args)
	if err == nil {
		err = flags.Run(ctx, entrypoint.Cluster{
			Protocol: cmp.Or(os.Getenv("KUBERNETES_SERVICE_PROTOCOL"), "https"),
			Host:     os.Getenv("KUBERNETES_SERVICE_HOST"), Port: os.Getenv("KUBERNETES_SERVICE_PORT"),
			ServiceAccount: entrypoint.ServiceAccount,
		}, log)
	}
	if err == nil {
		return 0
	}
	if !errors.Is(err, pflag.ErrHelp) { // asked for help: exit 1 all the same, as in v4
		fmt.Fprintln(stderr, "thin_entrypoint:", err)
	}
	return 1
}
