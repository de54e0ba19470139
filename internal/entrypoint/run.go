package entrypoint

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/confgen"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/install"
)

// pluginName is the plugin's file name on the node, whatever it is called in the image.
const pluginName = "multus"

// Run does the entrypoint's work until ctx ends. What is wrong at the start is an
// error; what goes wrong later is logged, and tried again.
func (f *Flags) Run(ctx context.Context, cluster Cluster, log *slog.Logger) error {
	cfg, warnings, err := config.Parse(f.thin().Bytes())
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn(string(w))
	}
	if cfg.MultusConfigFile != config.AutoConfigFile {
		f.warnOfIdle(log)
	}
	if f.restartCRIO {
		log.Warn("flag --restart-crio has no effect: " + places["restart-crio"].why)
	}
	if err := f.folders(log); err != nil {
		return err
	}
	if err := f.copyPlugin(log); err != nil {
		return err
	}
	watcher, err := confgen.NewThin(cfg, confgen.LogObserver{Log: log}, confgen.Thin{Rename: f.rename, Once: f.skipWatch})
	if err != nil {
		return fmt.Errorf("--multus-conf-file: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	access := &kubeconfig{cluster, f.skipTLSVerify, filepath.Join(f.cniConfDir, kubeconfigFolder, kubeconfigFile), log}
	if access.possible() {
		if err := access.file().Write(); err != nil {
			return err
		}
		group.Go(func() error { access.file().Keep(ctx); return nil })
	}
	group.Go(func() error { return watcher.Run(ctx) })
	return group.Wait()
}

// warnOfIdle tells of flags that stand for keys of the generated configuration, where a file
// is copied in its place.
func (f *Flags) warnOfIdle(log *slog.Logger) {
	f.set.Visit(func(flag *pflag.Flag) {
		switch key := places[flag.Name].key; key {
		case "", "multusConfigFile", "cniConfigDir", "cleanupConfigOnExit", "multusMasterCNI": // of the last the parser tells
		default:
			log.Warn(fmt.Sprintf("flag --%s has no effect, because --multus-conf-file names a file: set the key %q there", flag.Name, key))
		}
	})
}

// folders looks for what must be there, and makes the folder of named networks.
func (f *Flags) folders(log *slog.Logger) error {
	needed := map[string]string{"cni-conf-dir": f.cniConfDir}
	if !f.skipCopy {
		needed["cni-bin-dir"] = f.cniBinDir
	}
	for name, dir := range needed {
		if info, err := os.Stat(dir); err != nil {
			return fmt.Errorf("--%s: mount the node's folder there: %w", name, err)
		} else if !info.IsDir() {
			return fmt.Errorf("--%s: %s is not a folder", name, dir)
		}
	}
	if err := os.MkdirAll(f.multusConfDir, 0o755); err != nil {
		log.Warn("--multus-cni-conf-dir cannot be made", "error", err)
	}
	return nil
}

func (f *Flags) copyPlugin(log *slog.Logger) error {
	if f.skipCopy {
		return nil
	}
	dest := filepath.Join(f.cniBinDir, pluginName)
	written, err := install.File(f.multusBinFile, dest)
	if err != nil {
		return fmt.Errorf("--multus-bin-file, --cni-bin-dir: %w", err)
	}
	if written {
		log.Info("the file is in place", "file", dest)
	}
	return nil
}

// thin is the configuration that the flags stand for in a thin installation. Names of
// folders that the plugin uses become the host's.
func (f *Flags) thin() cniconf.Object {
	var o cniconf.Object
	f.set.VisitAll(func(flag *pflag.Flag) {
		key, value := places[flag.Name].key, flag.Value.String()
		_, list := flag.Value.(pflag.SliceValue)
		switch {
		case key == "" || value == "" || flag.Value.Type() == "bool" && value == flag.DefValue || list && !flag.Changed:
			return
		case flag.Name == "multus-cni-conf-dir":
			o = o.With(key, cniconf.Quote(onHost(value)))
		default:
			o = o.With(key, jsonValue(flag))
		}
	})
	return o.With("kubeconfig", jsonValue(f.set.Lookup("multus-kubeconfig-file-host")))
}

// onHost is the host's name of a folder that is mounted below /host by custom.
func onHost(path string) string {
	if bare, ok := strings.CutPrefix(path, "/host/"); ok {
		return "/" + bare
	}
	return path
}
