// Command install_multus copies Multus's CNI plugins from the image to the node
// (contract 1.2), or takes Multus off the node again. It is an init container.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/install"
	"github.com/multus-thick/multus/internal/nodestate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("install_multus", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	kind := flags.StringP("type", "t", "", "what to install: thick or thin (required)")
	dest := flags.StringP("dest-dir", "d", install.DefaultDestDir, "the node's folder of CNI plugins")
	source := flags.String("source-dir", install.DefaultSourceDir, "the folder to install from")
	_ = flags.MarkHidden("source-dir") // exists: defined in the line above
	uninstall := flags.Bool("uninstall", false, "put the node back as it was before Multus")
	var paths nodestate.Paths
	flags.StringVar(&paths.ConfDir, "cni-conf-dir", "/host/etc/cni/net.d", "with --uninstall, the node's folder of CNI configurations")
	flags.StringVar(&paths.CNIDir, "cni-dir", "", "with --uninstall, the folder of Multus's records (default /var/lib/cni/multus, below /host where it is there)")
	flags.StringVar(&paths.SocketDir, "socket-dir", "/host/run/multus", "with --uninstall, the folder of the daemon's socket")
	force := flags.Bool("force", false, "with --uninstall, also where pods hold what only Multus gives back")
	err := flags.Parse(args)
	switch {
	case err != nil:
	case *uninstall:
		paths.BinDir = *dest
		err = install.Uninstaller{Paths: paths.Find(nodestate.HostMount), Force: *force, Out: stdout}.Run(ctx)
	default:
		err = install.All(*kind, *source, *dest, stdout)
	}
	if err == nil {
		return 0
	}
	if !errors.Is(err, pflag.ErrHelp) { // asked for help: exit 1 all the same, as in v4
		fmt.Fprintln(stderr, "install_multus:", err)
	}
	return 1
}
