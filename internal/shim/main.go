package shim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
)

// Command is the plugin as a program: the flags of contract 1.2, else Main.
func Command(ctx context.Context, name, about string, p Plugin) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	var long, short bool
	flags.BoolVar(&long, "version", false, "print the version")
	flags.BoolVar(&short, "v", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return 2
	}
	if long || short {
		fmt.Println(about)
		return 0
	}
	// To write for a reader that is gone is an error then, and not the end. Delegates do
	// not inherit it, as they would if the signal was ignored.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return p.Main(ctx, about, os.Stdout)
}

// Main runs the invocation that the process's environment and stdin describe, as
// the CNI protocol wants it, and returns the exit code.
func (p *Plugin) Main(ctx context.Context, about string, stdout io.Writer) int {
	var stdin []byte // nil until the protocol is found to be one that we speak
	edge := func(do func(context.Context, Invocation) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			stdin = args.StdinData
			if err := do(ctx, invocation(args)); err != nil {
				return api.CNIError(err)
			}
			return nil
		}
	}
	add := func(ctx context.Context, inv Invocation) error {
		result, err := p.Add(ctx, inv)
		if err != nil {
			return err
		}
		if err := result.PrintTo(stdout); err != nil {
			return p.undelivered(context.WithoutCancel(ctx), inv, err)
		}
		return nil
	}
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: edge(add), Del: edge(p.Del), Check: edge(p.Check), GC: edge(p.GC), Status: edge(p.Status),
	}, version.All, about)
	if err == nil {
		return 0
	}
	if printErr := printError(stdout, inUse(stdin), err); printErr != nil {
		return 2
	}
	return 1
}

// undelivered undoes an ADD whose result cannot be handed over: the runtime has died, and
// what it never learnt of it may never delete.
func (p *Plugin) undelivered(ctx context.Context, inv Invocation, err error) error {
	return fmt.Errorf("the result cannot be handed over, the ADD is undone: %w", errors.Join(err, p.Del(ctx, inv)))
}

func invocation(args *skel.CmdArgs) Invocation {
	return Invocation{ContainerID: args.ContainerID, NetNS: args.Netns, Interface: args.IfName, Args: args.Args, Path: args.Path, Stdin: args.StdinData}
}

// inUse is the version of the protocol that the runtime speaks, in which errors are
// told too (CNI specification, section 5); where it is not known, our newest.
func inUse(stdin []byte) string {
	v, err := (&version.ConfigDecoder{}).Decode(stdin)
	if err != nil {
		return version.Current()
	}
	return v
}

func printError(w io.Writer, cniVersion string, err *types.Error) error {
	_, werr := fmt.Fprintf(w, "%s\n", api.ErrorBody(cniVersion, err))
	return werr
}
