// Command install_multus copies Multus's CNI plugins from the image to the node
// (contract 1.2). It is an init container.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/install"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("install_multus", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	kind := flags.StringP("type", "t", "", "what to install: thick or thin (required)")
	dest := flags.StringP("dest-dir", "d", install.DefaultDestDir, "the node's folder of CNI plugins")
	source := flags.String("source-dir", install.DefaultSourceDir, "the folder to install from")
	_ = flags.MarkHidden("source-dir") // exists: defined in the line above
	err := flags.Parse(args)
	if err == nil {
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
