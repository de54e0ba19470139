package confgen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/ledger"
)

// ReadFolder reads the configuration files of a folder, links followed. Other
// files are listed by name only.
func ReadFolder(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		f := File{Name: e.Name()}
		switch filepath.Ext(f.Name) {
		case ".conf", ".conflist", ".json":
			path := filepath.Join(dir, f.Name)
			if f.Content, f.Err = readRegular(path); f.Err == nil {
				f.Chained = gather.ReadPath(gather.OS{}, path, "").Chained
			}
		}
		files = append(files, f)
	}
	return files, nil
}

// readRenamed reads the file of a primary network that was put out of sight, as if it
// had its own name.
func readRenamed(dir, name string) File {
	path := filepath.Join(dir, name)
	f := File{Name: name}
	if f.Content, f.Err = readRegular(path + renamedSuffix); f.Err == nil {
		f.Chained = gather.ReadPath(renamed{path: path}, path, "").Chained
	}
	return f
}

// renamed shows a file that was put out of sight under its own name.
type renamed struct {
	gather.OS
	path string
}

// ReadFile is gather.Files's.
func (r renamed) ReadFile(path string) ([]byte, error) {
	if path == r.path {
		path += renamedSuffix
	}
	return r.OS.ReadFile(path)
}

// readRegular is os.ReadFile for regular files: opening a pipe would wait for ever.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.ReadFile(path)
}

// auxiliary reads the plugins of the node's auxiliary chain beside a primary
// network's file. One that does not parse has no say here; the plan tells about it.
func auxiliary(file, chain string) []cniconf.Plugin {
	var plugins []cniconf.Plugin
	for _, f := range gather.ReadPath(gather.OS{}, file, chain).Auxiliary {
		if p, err := cniconf.ParsePlugin(f.Content); err == nil {
			plugins = append(plugins, p)
		}
	}
	return plugins
}

// placeOf identifies a folder across mount namespaces, as the plugin will.
func placeOf(dir, proc string) (api.Place, error) {
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return api.Place{}, err
	}
	return ledger.PlaceOf(dir, strings.TrimSpace(string(boot)))
}

// onHost finds the folder dir on the host: the best known path, and whether it is
// certain (HostPaths). An empty path is not known at all.
func onHost(dir, chrootDir, proc string) (path string, certain bool, err error) {
	mountinfo, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return "", false, err
	}
	guesses, proven := HostPaths(string(mountinfo), dir, chrootDir)
	if len(guesses) == 0 {
		return "", false, nil
	}
	if proven || chrootDir == "" {
		return guesses[0], proven, nil
	}
	for _, guess := range guesses {
		if same(filepath.Join(chrootDir, guess), dir) {
			return guess, true, nil
		}
	}
	return guesses[0], false, nil
}

// same reports whether two paths lead to the same file or folder.
func same(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// gone reports whether nothing is at path; a path that cannot be looked at is not gone.
func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
