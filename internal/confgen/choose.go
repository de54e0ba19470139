package confgen

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/plan"
)

// FileName is the generated file's name.
const FileName = "00-multus.conf"

// ownPrefix begins the names of files that an installation of Multus generates,
// thick or thin.
const ownPrefix = "00-multus"

// ownTypes are the plugin types that a primary network must not hold at any depth:
// the node's pods would be attached by themselves, without end.
var ownTypes = []string{"multus-shim", "multus", "multus-cni"}

// File is a file of a configuration folder.
type File struct {
	Name    string // without folder
	Content []byte
	Err     error // why Content could not be read
	// Chained are the files of the folder named like the network (CNI 1.1).
	Chained []plan.File
}

// Choice is the primary network. Name is empty where none is chosen; Why then says
// what is waited for, or that a multusConfigFile stands in its place.
type Choice struct {
	Name   string         // of the file, in multusAutoconfigDir
	Config cniconf.Config // with the plugins of its folder
	Why    string
}

// Skipped is a configuration file that was looked at and cannot be the primary network.
type Skipped struct {
	Name   string
	Reason string // a predicate: "is empty"
}

// Choose picks the primary network's file among the files of multusAutoconfigDir
// (design rule 7): with multusMasterCNI the file of exactly that name or none,
// otherwise the first valid one by name. Other suffixes than .conf and
// .conflist, to which Multus v4 keeps too, and Multus's own files are passed over in
// silence; Skipped are the others that come before the choice.
func Choose(files []File, cfg *config.Config) (Choice, []Skipped) {
	if cfg.MultusMasterCNI != "" {
		return choosePinned(files, cfg.MultusMasterCNI)
	}
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	var skipped []Skipped
	for _, f := range sorted {
		if ext := filepath.Ext(f.Name); ext != ".conf" && ext != ".conflist" || strings.HasPrefix(f.Name, ownPrefix) {
			continue
		}
		conf, err := candidate(f)
		if err != nil {
			skipped = append(skipped, Skipped{f.Name, err.Error()})
			continue
		}
		return Choice{f.Name, conf, "the first valid configuration by name in " + cfg.MultusAutoconfigDir}, skipped
	}
	return Choice{Why: "waiting for a primary network's configuration (.conf or .conflist) in " + cfg.MultusAutoconfigDir}, skipped
}

func choosePinned(files []File, name string) (Choice, []Skipped) {
	for _, f := range files {
		if f.Name != name {
			continue
		}
		conf, err := candidate(f)
		if err != nil {
			return Choice{Why: fmt.Sprintf("waiting for %s, the multusMasterCNI: it %v", name, err)}, []Skipped{{name, err.Error()}}
		}
		return Choice{name, conf, "named by multusMasterCNI"}, nil
	}
	return Choice{Why: fmt.Sprintf("waiting for %s, the multusMasterCNI: there is no such file", name)}, nil
}

// candidate reads a file that may be the primary network. Errors are predicates.
func candidate(f File) (cniconf.Config, error) {
	switch {
	case strings.HasPrefix(f.Name, ownPrefix):
		return cniconf.Config{}, errors.New("is a file that Multus generates")
	case f.Err != nil:
		return cniconf.Config{}, fmt.Errorf("cannot be read: %w", f.Err)
	case len(strings.TrimSpace(string(f.Content))) == 0:
		return cniconf.Config{}, errors.New("is empty")
	}
	conf, err := parse(f)
	switch {
	case err != nil:
		return cniconf.Config{}, err
	case conf.Name() == "":
		return cniconf.Config{}, errors.New("has no key \"name\", which CNI requires")
	case conf.HasType(ownTypes...):
		return cniconf.Config{}, errors.New("holds Multus itself")
	}
	return conf, nil
}

func parse(f File) (cniconf.Config, error) {
	var chained []cniconf.Plugin
	for _, c := range f.Chained {
		if c.Missing != "" {
			return cniconf.Config{}, fmt.Errorf("takes a plugin from %s, which cannot be read: %s", c.Path, c.Missing)
		}
		p, err := cniconf.ParsePlugin(c.Content)
		if err != nil {
			return cniconf.Config{}, fmt.Errorf("takes a plugin from %s, which %w", c.Path, err)
		}
		chained = append(chained, p)
	}
	return cniconf.ParseWithFolder(f.Content, chained)
}

// besides tells which of a folder's files, other than the named one and those that run
// Multus, a runtime that takes the first valid file would take; "" for none.
func besides(files []File, name string) string {
	var picks []string
	for _, f := range files {
		ext := filepath.Ext(f.Name)
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, ext) || f.Name == name {
			continue
		}
		if conf, err := parse(f); err == nil && conf.Name() != "" && !conf.HasType(ownTypes...) {
			picks = append(picks, f.Name)
		}
	}
	if len(picks) == 0 {
		return ""
	}
	return slices.Min(picks)
}
