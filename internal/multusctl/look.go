package multusctl

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/install"
	"github.com/multus-thick/multus/internal/nodestate"
)

// look are the flags of the commands that look at a node.
type look struct {
	paths  nodestate.Paths
	output string
}

func (l *look) flags(cmd *cobra.Command) {
	const unless = ", or the same below /host where that is there"
	cmd.Flags().StringVar(&l.paths.ConfDir, "cni-conf-dir", "", "the runtime's folder of configurations (default /etc/cni/net.d"+unless+")")
	cmd.Flags().StringVar(&l.paths.BinDir, "cni-bin-dir", "", "the node's folder of CNI plugins (default /opt/cni/bin"+unless+")")
	cmd.Flags().StringVar(&l.paths.CNIDir, "cni-dir", "", "the folder of Multus's records (default /var/lib/cni/multus"+unless+")")
	cmd.Flags().StringVar(&l.paths.SocketDir, "socket-dir", "", "the folder of the daemon's socket (default /run/multus"+unless+")")
}

func (l *look) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&l.output, "output", "o", asText, "text or json")
}

func (l *look) read(cmd *cobra.Command) (nodestate.State, error) {
	if l.output != asText && l.output != asJSON {
		return nodestate.State{}, fmt.Errorf("flag --output: %q is no format; want %s or %s", l.output, asText, asJSON)
	}
	return nodestate.Read(cmd.Context(), l.paths.Find(nodestate.HostMount)), nil
}

const where = `

It runs on the node, or in the daemon's pod:
  kubectl -n kube-system exec POD -- multusctl `

func statusCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use: "status [[NAMESPACE/]POD]", Short: "Show how Multus stands on this node, and what is attached",
		Long: "Show how Multus stands on this node, and what is attached, of all pods or of one." + where + "status",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := l.read(cmd)
			if err == nil && len(args) == 1 {
				state, err = state.Of(args[0])
			}
			if err != nil {
				return err
			}
			if l.output == asJSON {
				return printJSON(cmd.OutOrStdout(), state)
			}
			if len(args) == 0 {
				printNode(cmd.OutOrStdout(), state)
			}
			printRecords(cmd.OutOrStdout(), state.Records, time.Now())
			return nil
		},
	}
	l.flags(cmd)
	l.outputFlag(cmd)
	return cmd
}

func doctorCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wrong with Multus on this node, and say what to do",
		Long: `Find what is wrong with Multus on this node, and say what to do. Before an installation it
tells whether the node is ready for one. The exit code is 1 where something is wrong.` + where + "doctor",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := l.read(cmd)
			if err != nil {
				return err
			}
			return tellFindings(cmd, l.output, nodestate.Diagnose(cmd.Context(), state, time.Now()))
		},
	}
	l.flags(cmd)
	l.outputFlag(cmd)
	return cmd
}

// tellFindings prints them; where something is wrong, the exit code is 1.
func tellFindings(cmd *cobra.Command, output string, findings []nodestate.Finding) error {
	var err error
	if output == asJSON {
		err = printJSON(cmd.OutOrStdout(), findings)
	} else {
		printFindings(cmd.OutOrStdout(), findings)
	}
	if err == nil && !nodestate.Healthy(findings) {
		err = exitCode(1)
	}
	return err
}

func bundleCommand() *cobra.Command {
	l := look{output: asText}
	cmd := &cobra.Command{
		Use: "bundle FILE", Short: "Write an archive of how Multus stands on this node, without secrets",
		Long: `Write an archive (tar, gzip) of how Multus stands on this node, for those who are asked for
help; "-" is the standard output. It holds versions, what status and doctor tell, the
generated configuration and the primary network's without what may be secret, metrics, and
the end of the plugin's log. Pods and addresses are in it.` + where + "bundle - >bundle.tar.gz",
		Args: takes("FILE, the archive that is written"),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := l.read(cmd)
			if err != nil {
				return err
			}
			now := time.Now()
			var archive bytes.Buffer
			if err := nodestate.Bundle(cmd.Context(), &archive, state, nodestate.Diagnose(cmd.Context(), state, now), now); err != nil {
				return err
			}
			if args[0] == "-" {
				_, err = archive.WriteTo(cmd.OutOrStdout())
				return err
			}
			return atomicfile.Write(args[0], archive.Bytes(), 0o600)
		},
	}
	l.flags(cmd)
	return cmd
}

func uninstallCommand() *cobra.Command {
	var l look
	u := install.Uninstaller{}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Put this node back as it was before Multus",
		Long: `Put this node back as it was before Multus: delete the DaemonSet first. The generated
configuration goes first, so that the runtime takes the primary network at once, then
Multus's kubeconfig, plugins and socket. The records stay.

It refuses where pods hold what only Multus gives back: further networks, whose addresses
and devices nobody frees once Multus has gone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u.Paths, u.Out = l.paths.Find(nodestate.HostMount), cmd.OutOrStdout()
			return u.Run(cmd.Context())
		},
	}
	l.flags(cmd)
	cmd.Flags().BoolVar(&u.Force, "force", false, "also where pods hold what only Multus gives back, or the node would have no network")
	return cmd
}
