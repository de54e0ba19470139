package multusctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/multus-thick/multus/internal/trial"
	"github.com/multus-thick/multus/internal/version"
)

// exitCode is an error that has been told already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run runs multusctl with its arguments and returns its exit code: 0 for success, 1
// for anything else.
func Run(ctx context.Context, args []string, stdin *os.File, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use: "multusctl", Short: "Try out and look into Multus networks",
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(tryCommand(), nodeCommand(stdin), planCommand(), versionCommand(),
		statusCommand(), doctorCommand(), bundleCommand(), uninstallCommand(), migrateCommand())
	err := root.ExecuteContext(ctx)
	var told exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &told):
		return int(told)
	}
	fmt.Fprintln(stderr, "multusctl:", err)
	return 1
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String("multusctl"))
		return err
	}}
}

func planCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use: "plan DIR", Short: "Print what the pods of a folder would be attached to, and run nothing",
		Long: `Print what the pods of a folder would be attached to, and run nothing.

DIR is as for 'multusctl try'. A pod whose request is wrong makes the command fail,
after all plans and all that is wrong are printed.`,
		Args: takes("DIR, the folder with the pods' YAML files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, options, err := c.read(cmd, args[0])
			if err != nil {
				return err
			}
			plans, err := trial.Plan(cmd.Context(), folder, options)
			if err != nil {
				return err
			}
			return printPlans(cmd.OutOrStdout(), c.output, folder.Warnings, plans)
		},
	}
	c.flags(cmd)
	return cmd
}

// takes demands a command's one argument, in words that say what it is.
func takes(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%s takes one argument, %s, and got %d; see '%s --help'", cmd.Name(), what, len(args), cmd.CommandPath())
	}
}

// common are the flags of the commands that take a folder.
type common struct {
	output  string
	cniPath string
	thin    bool
}

// The values of --output.
const (
	asText = "text"
	asJSON = "json"
)

func (c *common) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.output, "output", "o", asText, "text or json")
	cmd.Flags().StringVar(&c.cniPath, "cni-path", "", "folders of the CNI plugins, separated by ':' (default: the folder cni beside multusctl)")
	cmd.Flags().BoolVar(&c.thin, "thin", false, "use the thin plugin, without a daemon")
}

// read takes in the folder of a command. Warnings go to stderr; with JSON they are
// part of it.
func (c *common) read(cmd *cobra.Command, dir string) (*trial.Folder, trial.Options, error) {
	if c.output != asText && c.output != asJSON {
		return nil, trial.Options{}, fmt.Errorf("flag --output: %q is no format; want %s or %s", c.output, asText, asJSON)
	}
	folder, err := trial.Read(filepath.Clean(dir))
	if folder != nil && (err != nil || c.output == asText) {
		for _, w := range folder.Warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
	}
	if err != nil {
		return nil, trial.Options{}, err
	}
	options, err := c.options()
	return folder, options, err
}

// options finds the programs: beside multusctl, where nothing else is said.
func (c *common) options() (trial.Options, error) {
	self, err := os.Executable()
	if err != nil {
		return trial.Options{}, err
	}
	o := trial.Options{Bin: filepath.Dir(self), Thin: c.thin, Plugins: []string{filepath.Join(filepath.Dir(self), "cni")}}
	if c.cniPath == "" {
		return o, nil
	}
	o.Plugins = slices.DeleteFunc(filepath.SplitList(c.cniPath), func(dir string) bool { return dir == "" })
	for i, dir := range o.Plugins {
		if o.Plugins[i], err = filepath.Abs(dir); err != nil {
			return trial.Options{}, err
		}
	}
	return o, nil
}

func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
