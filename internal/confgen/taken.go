package confgen

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/multus-thick/multus/internal/cniconf"
)

// Taken tells which of a folder's files a container runtime takes: the first by name that
// holds a network, Multus's own or another. An empty name is none.
func Taken(files []File) (name string, conf cniconf.Config) {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range sorted {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(f.Name)) {
			continue
		}
		if c, err := parse(f); err == nil && c.Name() != "" {
			return f.Name, c
		}
	}
	return "", cniconf.Config{}
}

// OwnFile tells whether a file has a name under which Multus generates its configuration.
func OwnFile(f File) bool { return f.Name == FileName || f.Name == FileName+"list" }

// OwnPlugin is the plugin of ours, "multus-shim" or "multus", that the runtime runs for a file's
// network; "" where it runs another, or the file holds no network.
func OwnPlugin(f File) string {
	c, err := parse(f)
	if err != nil || !slices.Contains(ownTypes, c.Plugins()[0].Type) {
		return ""
	}
	return c.Plugins()[0].Type
}
