package confgen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

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

// restore brings the file of a primary network back that this run has put out of
// sight, or that is named so that none is mistaken for it.
func (w *Watcher) restore(name string) error {
	if !w.renames() || !gone(filepath.Join(w.source, name)) {
		return nil
	}
	return w.rename(name+renamedSuffix, name)
}

// bringBack undoes the renaming of a run that was killed, before this one chooses. The
// file is known by its content, which a configuration of ours holds, or by the name
// that multusMasterCNI gives; any other may be a backup that somebody made.
func (w *Watcher) bringBack() error {
	ours, err := ReadFolder(w.cfg.CNIConfigDir)
	if err != nil {
		return fmt.Errorf("cniConfigDir: %w", err)
	}

	if name := w.cfg.MultusMasterCNI; name != "" && w.renames() {
		if err := w.restore(name); err != nil || !gone(filepath.Join(w.source, name)) {
			return err
		}
	}
	_, primary := held(ours)
	if primary == nil {
		return nil
	}
	files, err := ReadFolder(w.source)
	if err != nil {
		return fmt.Errorf("multusAutoconfigDir: %w", err)
	}
	renamed := ""
	for _, f := range files {
		if conf, err := candidate(f); err == nil && conf.Name() == primary.Name() {
			return nil // it is back, or was never away
		}
		name, old := strings.CutSuffix(f.Name, renamedSuffix)
		if old && renamed == "" && gone(filepath.Join(w.source, name)) && sameNetwork(readRenamed(w.source, name), *primary) {
			renamed = name
		}
	}
	if renamed == "" {
		return nil
	}
	return w.rename(renamed+renamedSuffix, renamed)
}

// uncover sees to it that the runtime finds the primary network once our file, one of
// files, is gone.
func (w *Watcher) uncover(files []File) error {
	if !w.auto || w.chosen.Name != "" && !w.renames() {
		return nil
	}
	bring := w.bringBack
	if w.chosen.Name != "" {
		bring = func() error { return w.restore(w.chosen.Name) }
	}
	if err := bring(); err != nil {
		return err
	}
	ours, primary := held(files)
	if primary == nil {
		return nil
	}
	candidates, err := ReadFolder(w.source)
	if err != nil {
		return fmt.Errorf("multusAutoconfigDir: %w", err)
	}
	if choice, _ := Choose(candidates, w.cfg); choice.Name == "" {
		return fmt.Errorf("%s holds the only copy of the primary network's configuration: put one into %s first", filepath.Join(w.cfg.CNIConfigDir, ours), w.source)
	}
	return nil
}

// held is the primary network that a configuration of ours holds itself, and that file's
// name; nil for none.
func held(files []File) (ours string, primary *cniconf.Config) {
	for _, f := range files {
		if OwnFile(f) && OwnPlugin(f) != "" && primary == nil {
			ours, primary = f.Name, inlined(f)
		}
	}
	return ours, primary
}

// inlined is the first delegate in a configuration of ours; nil for none.
func inlined(ours File) *cniconf.Config {
	conf, err := parse(ours)
	if err != nil {
		return nil
	}
	raw, _ := conf.Plugins()[0].Object().Get("delegates")
	var delegates []cniconf.Config
	if json.Unmarshal(raw, &delegates) != nil || len(delegates) == 0 {
		return nil
	}
	return &delegates[0]
}

// sameNetwork tells whether a file holds a network as a configuration of ours does,
// where only the CNI version may be another (forceCNIVersion), and the order of keys.
func sameNetwork(f File, held cniconf.Config) bool {
	conf, err := candidate(f)
	return err == nil && reflect.DeepEqual(values(conf), values(held))
}

func values(c cniconf.Config) (v any) {
	d := json.NewDecoder(bytes.NewReader(c.WithCNIVersion("").Bytes()))
	d.UseNumber()
	_ = d.Decode(&v) // it was parsed before
	return v
}
