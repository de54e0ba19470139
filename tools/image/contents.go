package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// binDir is where every image has its programs (contract 1.1).
const binDir = "usr/src/multus-cni/bin"

// The search path of an image is its base's, or usualPath where the base has none, and
// then ourPath: so `cat` and `multusctl` are found on a base that has neither, and in
// the debug variants its tools.
const (
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	ourPath   = ":/" + binDir + ":/" + debugDir
)

// debDir, in the folder of what was built, holds the unpacked package.
const debDir = "deb"

// debugDir holds busybox in the debug variants: apart from /bin, so that nothing
// of a base is hidden by it.
const debugDir = "busybox"

// An entry is one path of an image: a folder, a symbolic link or a file.
type entry struct {
	path string      // from the image's root, with no slash before it
	mode fs.FileMode // with fs.ModeDir or fs.ModeSymlink
	link string      // where a symbolic link points
	from string      // the file on this machine that holds the content
	text string      // the content, where from is empty
}

func folder(path string, mode fs.FileMode) entry { return entry{path: path, mode: fs.ModeDir | mode} }

func link(path, target string) entry {
	return entry{path: path, mode: fs.ModeSymlink | 0o777, link: target}
}

// A flavor is one of the two images.
type flavor struct {
	name       string            // "thick"
	suffix     string            // of the tag
	entrypoint string            // path of the program that the image runs
	programs   []string          // in binDir, of those that were built
	links      map[string]string // name in / of a program in binDir
	tools      []entry           // what the default base has besides the files common to both
}

// flavors are the images that are built. built is the folder that holds the
// compiled programs and the files of the recorded package.
func flavors(built string) []flavor {
	both := []string{"cert-approver", "install_multus", "kubeconfig_generator", "multus", "multusctl", "passthru", "thin_entrypoint"}
	return []flavor{{
		name:       "thick",
		suffix:     "-thick",
		entrypoint: "/" + binDir + "/multus-daemon",
		programs:   append([]string{"multus-daemon", "multus-shim"}, both...),
		links:      map[string]string{"cert-approver": "cert-approver", "install_multus": "install_multus"},
		tools: append(busybox(built, "bin"),
			link("bin/cat", "busybox"), link("bin/cp", "busybox"), link("bin/sh", "busybox")),
	}, {
		name:       "thin",
		entrypoint: "/thin_entrypoint",
		programs:   append([]string{"cat"}, both...),
		links: map[string]string{
			"cert-approver": "cert-approver", "install_multus": "install_multus", "kubeconfig_generator": "kubeconfig_generator",
			"thin_entrypoint": "thin_entrypoint", "entrypoint.sh": "thin_entrypoint",
		},
		tools: []entry{link("bin/cat", "/"+binDir+"/cat")},
	}}
}

// base is the bottom layer of an image that is built on no other.
func (f flavor) base() []entry {
	return withFolders(append([]entry{
		{path: "etc/group", mode: 0o644, text: "root:x:0:\nnobody:x:65534:\n"},
		{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"},
		folder("root", 0o700),
		folder("run", 0o755),
		folder("tmp", fs.ModeSticky|0o777),
		// Network namespaces are handed over as /var/run/netns/…, and are mounted below /run.
		link("var/run", "/run"),
	}, f.tools...))
}

// ours is the layer with Multus itself, the only one on a base of the user's own.
func (f flavor) ours(root, built string) ([]entry, error) {
	entries := []entry{{path: path.Join(path.Dir(binDir), "LICENSE"), mode: 0o644, from: filepath.Join(root, "LICENSE")}}
	for _, name := range f.programs {
		program := filepath.Join(built, name)
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("the %s image needs the program %s, and ./cmd/... builds none of that name: %w", f.name, name, err)
		}
		entries = append(entries, entry{path: path.Join(binDir, name), mode: 0o755, from: program})
	}
	for name, program := range f.links {
		entries = append(entries, link(name, "/"+path.Join(binDir, program)))
	}
	return withFolders(entries), nil
}

// debugTools is the top layer of a debug variant: busybox under the name of each of its applets.
func debugTools(built string, applets []string) []entry {
	entries := busybox(built, debugDir)
	for _, name := range applets {
		entries = append(entries, link(path.Join(debugDir, name), "busybox"))
	}
	return withFolders(entries)
}

func busybox(built, dir string) []entry {
	return []entry{
		{path: path.Join(dir, "busybox"), mode: 0o755, from: filepath.Join(built, debDir, debBinary)},
		{path: debCopyright, mode: 0o644, from: filepath.Join(built, debDir, debCopyright)},
	}
}

// withFolders sorts entries and puts in the folders above them: a runtime that has to
// make up a missing folder may make one that only root's capabilities can enter.
func withFolders(entries []entry) []entry {
	have := map[string]bool{".": true}
	for _, e := range entries {
		have[e.path] = true
	}
	for _, e := range slices.Clone(entries) {
		for dir := path.Dir(e.path); !have[dir]; dir = path.Dir(dir) {
			have[dir] = true
			entries = append(entries, folder(dir, 0o755))
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	return entries
}
