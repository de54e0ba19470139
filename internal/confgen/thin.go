package confgen

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// renamedSuffix ends the name of a primary network's file that was put out of the
// runtime's sight.
const renamedSuffix = ".old"

// Thin says how the configuration of the thin plugin is kept.
type Thin struct {
	// Rename puts the primary network's file out of the runtime's sight once its
	// content is in ours. It comes back where the configuration is cleaned up.
	Rename bool
	// Once leaves everything alone from the moment at which it was right.
	Once bool
}

// NewThin prepares a Watcher that keeps the configuration of the thin plugin. What
// that plugin reads on the host (kubeconfig, confDir, readinessindicatorfile) cfg
// names as the host sees it.
func NewThin(cfg *config.Config, observer Observer, thin Thin) (*Watcher, error) {
	w, err := New(cfg, observer, nil)
	if err != nil {
		return nil, err
	}
	w.thin = &thin
	return w, nil
}

// GenerateThin writes the configuration of the thin plugin (contract 1.2), as Multus
// v4's can read it too, and tells whether it is a list, which CNI wants from version
// 1.0.0 on. The primary network is the file in.Path on the host, or stands in
// the configuration itself where the path is empty.
func GenerateThin(in Input) (content []byte, list bool, err error) {
	cfg := in.Config
	version := cmp.Or(cfg.CNIVersion, in.Primary.CNIVersion())
	if list, err = cniversion.GreaterThanOrEqualTo(version, "1.0.0"); err != nil {
		return nil, false, fmt.Errorf("cniVersion: %w", err)
	}
	name := config.DefaultNetworkName
	if cfg.OverrideNetworkName {
		name = in.Primary.Name()
	}
	head := fields{}
	head.set("cniVersion", version)
	head.set("name", name)
	plugin := fields{}
	if !list {
		plugin = head
	}
	plugin.set("type", "multus")
	plugin.set("capabilities", capabilities(in))
	if in.Path != "" {
		plugin.set("clusterNetwork", in.Path)
	} else {
		plugin.set("delegates", []cniconf.Config{in.Primary})
	}
	plugin.text("kubeconfig", cfg.Kubeconfig, "")
	plugin.text("confDir", cfg.ConfDir, config.DefaultConfDir)
	plugin.text("readinessindicatorfile", cfg.ReadinessIndicatorFile, "")
	plugin.passThrough(cfg)
	if !list {
		return append(plugin.Bytes(), '\n'), false, nil
	}
	head.set("plugins", []cniconf.Object{plugin.Object})
	return append(head.Bytes(), '\n'), true, nil
}

// generateThin derives the content of the target, and its name.
func (w *Watcher) generateThin(choice Choice) ([]byte, error) {
	in := Input{Config: w.cfg, Primary: choice.Config}
	folder, err := w.findOnHost(w.source)
	if err != nil {
		return nil, fmt.Errorf("cannot tell where %s is on the host: %w", w.source, err)
	}
	if folder.certain && !w.thin.Rename && !w.cfg.ForceCNIVersion {
		in.Path = filepath.Join(folder.path, choice.Name)
	}
	content, list, err := GenerateThin(in)
	if err != nil {
		return nil, err
	}
	target := filepath.Join(w.cfg.CNIConfigDir, FileName)
	if list {
		target += "list"
	}
	if target != w.target {
		w.target, w.placed = target, nil
	}
	return content, nil
}

// rename renames a file of the primary network's folder, where it is there.
func (w *Watcher) rename(from, to string) error {
	to = filepath.Join(w.source, to)
	err := os.Rename(filepath.Join(w.source, from), to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the primary network's file cannot be renamed: %w", err)
	}
	w.observer.Written(to)
	return nil
}

// renames tells that the primary network's file is put out of sight, so that its
// absence means nothing.
func (w *Watcher) renames() bool { return w.thin != nil && w.thin.Rename }

// restore brings the primary network's file back: at the end, or for a look of a run
// that has not chosen one. Only a file of a certain name is touched: any other
// may be a backup that somebody made.
func (w *Watcher) restore(name string) error {
	if !w.renames() || !gone(filepath.Join(w.source, name)) {
		return nil
	}
	return w.rename(name+renamedSuffix, name)
}
