package gather

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// OS reads files where this process runs.
type OS struct{}

// ReadFile is os.ReadFile.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// ReadDir lists the names of a folder's regular files and links, sorted: to open a
// pipe would wait for ever.
func (OS) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() || e.Type() == fs.ModeSymlink {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// IsDir tells whether path is a folder.
func (OS) IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// ReadPath answers for a path-valued network: the file, or the first file of the
// folder, with the files of the folder named like its network and of the
// auxiliary chain beside it. What cannot be read says so in Missing.
func ReadPath(files Files, path, auxiliaryChain string) plan.PathFacts {
	file := plan.File{Path: path}
	if files.IsDir(path) {
		found := readFolder(files, path, ".conf", ".conflist", ".json")
		if len(found) == 0 {
			file.Missing = "the folder holds no CNI configuration file"
			return plan.PathFacts{File: file}
		}
		file = found[0]
	} else {
		file = read(files, path)
	}
	facts := plan.PathFacts{File: file}
	dir := filepath.Dir(file.Path)
	if filepath.Ext(file.Path) == ".conflist" {
		if name := networkName(file.Content); name != "" {
			facts.Chained = readFolder(files, filepath.Join(dir, name), ".conf")
		}
	}
	if auxiliaryChain != "" {
		facts.Auxiliary = readFolder(files, filepath.Join(dir, auxiliaryChain), ".conf")
	}
	return facts
}

// networkName reads the name alone: a list that takes all its plugins from the
// folder is no complete configuration without them.
func networkName(content []byte) string {
	c, err := cniconf.ParseWithFolder(content, []cniconf.Plugin{{}})
	if err != nil || filepath.Base(c.Name()) != c.Name() {
		return ""
	}
	return c.Name()
}

// readFolder reads the files with the given extensions, by name. A folder that does
// not exist has none. What is there and cannot be read is among them, and says so in
// Missing: whoever needs it must not go without it in silence.
func readFolder(files Files, dir string, extensions ...string) []plan.File {
	if !files.IsDir(dir) {
		return nil
	}
	names, err := files.ReadDir(dir)
	if err != nil {
		return []plan.File{{Path: dir, Missing: reason(err)}}
	}
	var found []plan.File
	for _, name := range names {
		if slices.Contains(extensions, filepath.Ext(name)) {
			found = append(found, read(files, filepath.Join(dir, name)))
		}
	}
	return found
}

func read(files Files, path string) plan.File {
	content, err := files.ReadFile(path)
	if err != nil {
		return plan.File{Path: path, Missing: reason(err)}
	}
	return plan.File{Path: path, Content: content}
}

// reason is the cause alone: the path is said beside it.
func reason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it does not exist"
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Sprint(err)
}
