// Command cluster runs a real Kubernetes on this one machine, for a developer and for
// the suite in test/e2e. Package lab does the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/multus-thick/multus/test/cluster/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if lab.IsInit() {
		os.Exit(lab.Init(ctx))
	}
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "A real Kubernetes on this machine: etcd, the control plane, nodes with containerd", Args: cobra.NoArgs,
		Long: `A real Kubernetes on this machine: etcd, the control plane, nodes with containerd.

MULTUS_CLUSTER_STATE names the folder of the cluster; two folders are two clusters.
MULTUS_CLUSTER_CACHE names that of the programs, which are built once.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(up(), down(), status(), build(), exec(), kubectl(), load(), reboot(), stopNode(), startNode(), program(), logs())
	return cmd
}

// on is a command that works on the cluster.
func on(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, c *lab.Cluster, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		config, err := lab.DefaultConfig(os.Getenv)
		if err != nil {
			return err
		}
		c, err := lab.Open(config)
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}}
}

func up() *cobra.Command {
	o := lab.Options{Runtime: lab.Containerd}
	cmd := on("up", "Bring it up, and print the line that lets kubectl find it", cobra.NoArgs, func(ctx context.Context, c *lab.Cluster, _ []string) error {
		if err := c.Up(ctx, o); err != nil {
			return err
		}
		fmt.Println("export KUBECONFIG=" + c.Kubeconfig())
		return nil
	})
	cmd.Flags().IntVar(&o.Nodes, "nodes", 2, "how many nodes, 1 to 9")
	runtimeFlag(cmd, &o.Runtime)
	return cmd
}

func runtimeFlag(cmd *cobra.Command, r *lab.Runtime) {
	cmd.Flags().StringVar((*string)(r), "runtime", string(lab.Containerd), "containerd, or debian for Debian's containerd and runc")
}

func down() *cobra.Command {
	return on("down", "Take it down, and remove all that it was", cobra.NoArgs, func(ctx context.Context, c *lab.Cluster, _ []string) error {
		return c.Down(ctx)
	})
}

func build() *cobra.Command {
	runtime := lab.Containerd
	cmd := on("build", "Only build what a cluster needs", cobra.NoArgs, func(ctx context.Context, c *lab.Cluster, _ []string) error {
		return c.Build(ctx, runtime)
	})
	runtimeFlag(cmd, &runtime)
	return cmd
}

func status() *cobra.Command {
	return on("status", "Show machines, programs, memory, and where the logs are", cobra.NoArgs, func(ctx context.Context, c *lab.Cluster, _ []string) error {
		if c.Options().Nodes == 0 {
			fmt.Println("no cluster is up")
			return nil
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, m := range c.Machines() {
			printMachine(ctx, w, m)
		}
		fmt.Fprintln(w, "export KUBECONFIG="+c.Kubeconfig())
		return w.Flush()
	})
}

func printMachine(ctx context.Context, w io.Writer, m lab.Machine) {
	if !m.Running() {
		fmt.Fprintf(w, "%s\toff\t\t%s\n", m.Name, m.Logs())
		return
	}
	memory, err := m.Memory()
	programs, unanswered := m.Programs(ctx)
	if err = errors.Join(err, unanswered); err != nil {
		fmt.Fprintf(w, "%s\tdoes not answer: %v\t\t%s\n", m.Name, err, m.Logs())
		return
	}
	fmt.Fprintf(w, "%s\ton\t%d MiB\t%s\n", m.Name, memory>>20, m.Logs())
	for _, p := range programs {
		state := fmt.Sprint("pid ", p.PID)
		switch {
		case p.PID == 0 && p.Wanted:
			state = "starting"
		case p.PID == 0:
			state = "stopped"
		}
		fmt.Fprintf(w, "  %s\t%s\tstarted %d times\t\n", p.Name, state, p.Starts)
	}
}

// exec becomes the command, so that a terminal and what ends this process reach it.
func exec() *cobra.Command {
	cmd := on("exec MACHINE COMMAND [ARG]...", "Run a command on control-plane, node1, node2...", cobra.MinimumNArgs(2), func(ctx context.Context, c *lab.Cluster, args []string) error {
		m, err := c.Machine(args[0])
		if err != nil {
			return err
		}
		command, err := m.Command(ctx, args[1], args[2:]...)
		if err != nil {
			return err
		}
		if command.Err != nil {
			return command.Err
		}
		return syscall.Exec(command.Path, command.Args, append(command.Env, "TERM="+os.Getenv("TERM")))
	})
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// kubectl becomes kubectl, for the same reason.
func kubectl() *cobra.Command {
	cmd := on("kubectl [ARG]...", "Run kubectl as the cluster's administrator", cobra.ArbitraryArgs, func(_ context.Context, c *lab.Cluster, args []string) error {
		if c.Options().Nodes == 0 {
			return fmt.Errorf("no cluster is up")
		}
		return syscall.Exec(c.Kubectl(), append([]string{"kubectl"}, args...), append(os.Environ(), "KUBECONFIG="+c.Kubeconfig()))
	})
	cmd.DisableFlagParsing = true
	return cmd
}

func load() *cobra.Command {
	return on("load IMAGE.tar...", "Load image archives on every node", cobra.MinimumNArgs(1), func(ctx context.Context, c *lab.Cluster, args []string) error {
		return c.Load(ctx, args...)
	})
}

// onNode is a command whose argument is a node's number or name.
func onNode(use, short string, run func(ctx context.Context, m lab.Machine) error) *cobra.Command {
	return on(use+" NODE", short, cobra.ExactArgs(1), func(ctx context.Context, c *lab.Cluster, args []string) error {
		name := args[0]
		if n, err := strconv.Atoi(name); err == nil {
			name = c.Node(n).Name
		}
		m, err := c.Machine(name)
		if err != nil {
			return err
		}
		return run(ctx, m)
	})
}

func reboot() *cobra.Command {
	var o lab.BootOptions
	cmd := onNode("reboot", "Cut a node's power, and start it again", func(ctx context.Context, m lab.Machine) error { return m.Reboot(ctx, o) })
	volatileFlag(cmd, &o)
	return cmd
}

func stopNode() *cobra.Command {
	return onNode("stop", "Cut a node's power", func(ctx context.Context, m lab.Machine) error { return m.Stop(ctx) })
}

func startNode() *cobra.Command {
	var o lab.BootOptions
	cmd := onNode("start", "Start a node that is off", func(ctx context.Context, m lab.Machine) error { return m.Start(ctx, o) })
	volatileFlag(cmd, &o)
	return cmd
}

func volatileFlag(cmd *cobra.Command, o *lab.BootOptions) {
	cmd.Flags().BoolVar(&o.VolatileEtc, "volatile-etc", false, "lose /etc, but for the static pods")
}

func program() *cobra.Command {
	verbs := map[string]func(lab.Machine, context.Context, string) error{
		"start": lab.Machine.StartProgram, "stop": lab.Machine.StopProgram,
		"restart": lab.Machine.RestartProgram, "kill": lab.Machine.KillProgram,
	}
	return on("program MACHINE NAME start|stop|restart|kill", "Control one program, such as kubelet", cobra.ExactArgs(3), func(ctx context.Context, c *lab.Cluster, args []string) error {
		m, err := c.Machine(args[0])
		if err != nil {
			return err
		}
		do, ok := verbs[args[2]]
		if !ok {
			return fmt.Errorf("%q is none of start, stop, restart, kill", args[2])
		}
		return do(m, ctx, args[1])
	})
}

func logs() *cobra.Command {
	return on("logs FOLDER", "Copy the logs of all machines", cobra.ExactArgs(1), func(ctx context.Context, c *lab.Cluster, args []string) error {
		return c.CopyLogs(ctx, args[0])
	})
}
