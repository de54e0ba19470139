package multusctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/manifest"
	"github.com/multus-thick/multus/internal/migrate"
	"github.com/multus-thick/multus/internal/nodestate"
	"github.com/multus-thick/multus/internal/version"
)

// migration are the flags of migrate.
type migration struct {
	look
	options    migrate.Options
	kubeconfig string
	write      string
	check      bool
}

func migrateCommand() *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use: "migrate [FILE|DIR|-]", Short: "Tell what an installation of Multus v3 or v4 becomes here, and what does not come along",
		Long: `Tell what an installation of Multus v3 or v4 becomes here, what changes and what does not
come along, with the commands. It changes nothing.

It reads the DaemonSet and its ConfigMaps: of a file, of the files of a folder, of the
standard input ("-"), or with --kubeconfig of a cluster, from all namespaces. The values of the
RKE2 and K3s chart will do too. On a node, --check tells what is on it, and what would be
in the way.`,
		Example: `  multusctl migrate kube-multus-ds.yaml
  kubectl get daemonset,configmap -A -o yaml | multusctl migrate -
  multusctl migrate --kubeconfig ~/.kube/config --write multus-new
  multusctl migrate --check`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if m.output != asText && m.output != asJSON {
				return fmt.Errorf("flag --output: %q is no format; want %s or %s", m.output, asText, asJSON)
			}
			if filepath.IsAbs(m.options.Repository) {
				return fmt.Errorf("flag --repository: %s is absolute, which kustomize does not take; want the way there from the new files", m.options.Repository)
			}
			if m.check {
				return m.checkNode(cmd, args)
			}
			return m.report(cmd, args)
		},
	}
	m.flags(cmd)
	m.outputFlag(cmd)
	cmd.Flags().StringVar(&m.kubeconfig, "kubeconfig", "", "read the cluster of this kubeconfig file")
	cmd.Flags().StringVar(&m.options.Image, "image", "registry.example.com/multus-cni", "where our image is, without a tag")
	cmd.Flags().StringVar(&m.options.Repository, "repository", "PATH-OF-THIS-REPOSITORY", "the folder that holds deploy, as seen from the new files: a relative path")
	cmd.Flags().StringVar(&m.write, "write", "", "write the new files into this folder, which must not exist yet")
	cmd.Flags().BoolVar(&m.check, "check", false, "look at this node instead")
	return cmd
}

func (m *migration) report(cmd *cobra.Command, args []string) error {
	var objects migrate.Objects
	var err error
	switch {
	case (len(args) == 0) == (m.kubeconfig == ""):
		return errors.New("name a file, a folder or - to read, or a cluster with --kubeconfig; one of them")
	case m.kubeconfig != "":
		err = m.readCluster(cmd.Context(), &objects)
	default:
		err = readFiles(&objects, args[0], cmd.InOrStdin())
	}
	if err != nil {
		return err
	}
	report, err := objects.Report(m.options)
	if err != nil {
		return err
	}
	if m.write != "" {
		if err := writeFiles(m.write, report); err != nil {
			return err
		}
	}
	if m.output == asJSON {
		return printJSON(cmd.OutOrStdout(), report)
	}
	for n, i := range report.Installations {
		if n > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		printMigration(cmd.OutOrStdout(), i)
	}
	return nil
}

// checkNode is the pre-flight on a node.
func (m *migration) checkNode(cmd *cobra.Command, args []string) error {
	if len(args) > 0 || m.kubeconfig != "" || m.write != "" {
		return errors.New("flag --check looks at this node, and takes no file, cluster or folder to write")
	}
	state, err := m.read(cmd)
	if err != nil {
		return err
	}
	return tellFindings(cmd, m.output, nodestate.Preflight(cmd.Context(), state, time.Now()))
}

// readFiles takes in a file, the manifests of a folder, or "-".
func readFiles(objects *migrate.Objects, path string, stdin io.Reader) error {
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return err
		}
		return objects.Add("the standard input", text)
	}
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		files = nil
		for _, e := range entries {
			if manifest.IsManifest(e) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := objects.Add(file, text); err != nil {
			return err
		}
	}
	return nil
}

// readCluster takes in all DaemonSets, and the ConfigMaps of those that run Multus.
func (m *migration) readCluster(ctx context.Context, objects *migrate.Objects) error {
	client, err := kube.Connect(kube.Options{Kubeconfig: m.kubeconfig, UserAgent: "multusctl/" + version.Get().Version})
	if err != nil {
		return err
	}
	defer client.Close()
	read := func(path string) error {
		text, err := client.Raw(ctx, path)
		if err != nil {
			return err
		}
		return objects.Add("the cluster", text)
	}
	if err := read("/apis/apps/v1/daemonsets"); err != nil {
		return err
	}
	names := objects.ConfigMaps()
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		namespace, name, _ := strings.Cut(name, "/")
		if err := read("/api/v1/namespaces/" + namespace + "/configmaps/" + name); err != nil && !errors.Is(err, kube.ErrNotFound) {
			return err
		}
	}
	return nil
}

func writeFiles(dir string, report migrate.Report) error {
	if len(report.Installations) > 1 {
		return fmt.Errorf("flag --write: %d installations were found; give one of them alone", len(report.Installations))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("flag --write: %w", err)
	}
	for _, f := range report.Installations[0].Becomes.Files {
		if err := atomicfile.Write(filepath.Join(dir, f.Name), []byte(f.Content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
