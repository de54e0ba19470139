package multusctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/trial"
)

// tryRequest is a try, as it is handed to the node's process.
type tryRequest struct {
	Dir     string
	Output  string
	Keep    bool
	Verbose bool
	Execs   []podCommand
	Options trial.Options
}

// podCommand is a command for a pod, "namespace/name".
type podCommand struct{ Pod, Command string }

func tryCommand() *cobra.Command {
	var c common
	var req tryRequest
	var execs []string
	cmd := &cobra.Command{
		Use: "try DIR", Short: "Attach the pods of a folder to their networks, on a node of its own and without a cluster",
		Long: `Attach the pods of a folder to their networks, on a node of its own and without a
cluster. The node lives in private namespaces; nothing on this machine changes, and all
of it is gone when the command ends, however it ends.

DIR holds YAML files with Pods and NetworkAttachmentDefinitions, and may hold
  primary.conflist     the primary network; a bridge where it is absent
  daemon-config.json   settings of the node; what they say of paths is replaced

An interface that a network names as its master is made: one end of a veth pair, whose
other end stands for the wire. The real daemon and plugin attach each pod, and what
each pod then has is shown.`,
		Example: `  multusctl try examples/three-networks
  multusctl try examples/three-networks --exec 'ip route' --exec server='ip -br address'
  multusctl try --keep my-networks`,
		Args: takes("DIR, the folder with the pods' YAML files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, options, err := c.read(cmd, args[0])
			if err != nil {
				return err
			}
			req.Output, req.Options = c.output, options
			if req.Execs, err = podCommands(execs, folder.Pods()); err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("try makes network namespaces, which only root may; run it with sudo, or see 'multusctl plan'")
			}
			if req.Dir, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			return startNode(cmd.Context(), cmd, req)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringArrayVar(&execs, "exec", nil, "shell command to run in the first pod's network, or [NAMESPACE/]POD=COMMAND; may be repeated")
	cmd.Flags().BoolVar(&req.Keep, "keep", false, "leave everything for looking in, and say how, and how to take it down")
	cmd.Flags().BoolVarP(&req.Verbose, "verbose", "v", false, "print the log of the daemon and the plugins to stderr at the end")
	return cmd
}

// podCommands gives each --exec its pod: the one that is named before the first "=",
// else the folder's first.
func podCommands(execs []string, pods []gather.Pod) ([]podCommand, error) {
	var all []podCommand
	for _, text := range execs {
		c := podCommand{pods[0].String(), text}
		if name, command, ok := strings.Cut(text, "="); ok {
			var named []string
			for _, p := range pods {
				if name == p.Name || name == p.String() {
					named = append(named, p.String())
				}
			}
			switch len(named) {
			case 0: // an "=" of the command's own
			case 1:
				c = podCommand{named[0], command}
			default:
				return nil, fmt.Errorf("flag --exec %q: %s are both meant; name the namespace too", text, strings.Join(named, " and "))
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// startNode starts the node's process and waits until it has ended, or stays.
func startNode(ctx context.Context, cmd *cobra.Command, req tryRequest) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a socket to the node's process: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "node"), os.NewFile(uintptr(ends[1]), "node")
	defer ours.Close()
	node := exec.CommandContext(ctx, "/proc/self/exe", "node", string(text))
	node.Args[0] = "multusctl" // for those who look at the list of processes
	node.Stdin, node.Stdout, node.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	node.ExtraFiles = []*os.File{theirs}
	node.SysProcAttr = &syscall.SysProcAttr{Cloneflags: trial.CloneFlags}
	node.Cancel = func() error { return node.Process.Signal(syscall.SIGTERM) } // it takes all down
	err = node.Start()
	theirs.Close() // ours ends where the process does
	if err != nil {
		return fmt.Errorf("starting the node, for which a container needs --privileged: %w", err)
	}
	var stays [1]byte
	if _, err := io.ReadFull(ours, stays[:]); err == nil {
		return code(int(stays[0]))
	}
	if err := node.Wait(); node.ProcessState == nil {
		return fmt.Errorf("the node's process: %w", err)
	}
	if !node.ProcessState.Exited() {
		return fmt.Errorf("the node's process ended by force, and all of the node with it: %s", node.ProcessState)
	}
	return code(node.ProcessState.ExitCode())
}

func code(c int) error {
	if c == 0 {
		return nil
	}
	return exitCode(c)
}
