package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// A stub prints its own name. multus has a dependency, for the SBOM.
const stub = `package main

import "os"

func main() { os.Stdout.WriteString("%s\n") }
`

// Stands for `go build`, in a checkout: hands out the programs that are there already.
const copies = `#!/bin/sh -e
case $8 in
./cat) cp ../../built/cat "$7" ;;
*) for name in cmd/*; do cp "built/${name#cmd/}" "$7"; done ;;
esac
`

// Stands for `go build`: does so for one program, and takes it for the others too.
const buildsOne = `#!/bin/sh -e
[ "$8" = ./cat ] && exec go "$@"
go "$1" "$2" "$3" "$4" "$5" "$6" "$7" ./cmd/multus-daemon
for name in cmd/*; do cp -n "$7/multus-daemon" "$7/${name#cmd/}"; done
`

// model is the folder of a small checkout that mkimage can build, made once: stubs of
// the programs, and packages whose busybox is one too.
var model string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mkimage")
	if err == nil {
		model, err = dir, makeModel(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.RemoveAll(dir + "-plain")
	os.Exit(code)
}

// programs are those of cmd/ in the images, of either kind.
func programs() []string {
	var all []string
	for _, f := range flavors("") {
		all = append(all, f.programs...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "cat" })
}

func makeModel(dir string) error {
	files := map[string]string{
		"go.mod":                  "module example.com/multus\n\ngo 1.26\n\nrequire example.com/lib v1.2.3\n\nreplace example.com/lib => ./lib\n",
		"lib/go.mod":              "module example.com/lib\n\ngo 1.26\n",
		"lib/lib.go":              "package lib\n",
		"LICENSE":                 "a licence\n",
		"busybox/main.go":         fmt.Sprintf(stub, "busybox"),
		"tools/image/go.mod":      "module example.com/image\n\ngo 1.26\n",
		"tools/image/cat/main.go": fmt.Sprintf(stub, "cat"),
		"go-copies":               copies,
		"go-builds-one":           buildsOne,
	}
	for _, name := range programs() {
		files["cmd/"+name+"/main.go"] = fmt.Sprintf(stub, name)
	}
	files["cmd/multus/main.go"] = strings.Replace(files["cmd/multus/main.go"], `"os"`, "(\n\t\"os\"\n\n\t_ \"example.com/lib\"\n)", 1)
	for name, text := range files {
		if err := cmp.Or(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)); err != nil {
			return err
		}
	}
	if err := command(dir, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "built/", "./cmd/...", "./busybox"); err != nil {
		return err
	}
	if err := command(dir+"/tools/image", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "../../built/", "./cat"); err != nil {
		return err
	}
	lock := "# A comment.\nmirror copy:MODEL\napplets [ cat sh\n"
	for _, p := range platforms() {
		sum, err := debian(dir, p.debian)
		if err != nil {
			return err
		}
		lock += fmt.Sprintf("deb %s busybox-static 1:1-2 pool/%s %s\n", p.debian, debFile(p.debian), sum)
	}
	return cmp.Or(os.MkdirAll(dir+"/image", 0o755), os.WriteFile(dir+"/image/debian.lock", []byte(lock), 0o644))
}

func debFile(arch string) string { return "busybox-static_1-2_" + arch + ".deb" }

// debian makes the recorded package; its busybox is this machine's whatever the architecture.
func debian(dir, arch string) (sum string, err error) {
	content, file := filepath.Join(dir, "content", arch), filepath.Join(dir, "pool", debFile(arch))
	busybox, err := os.ReadFile(filepath.Join(dir, "built/busybox"))
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"DEBIAN/control": "Package: busybox-static\nVersion: 1:1-2\nArchitecture: " + arch + "\nMaintainer: nobody\nDescription: stub\n",
		debCopyright:     "GPL-2\n",
		debBinary:        string(busybox),
	} {
		if err := cmp.Or(os.MkdirAll(filepath.Join(content, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(content, name), []byte(text), 0o755)); err != nil {
			return "", err
		}
	}
	if err := cmp.Or(os.MkdirAll(filepath.Dir(file), 0o755), command(dir, "dpkg-deb", "-Znone", "--root-owner-group", "--build", content, file)); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

func command(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if said, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return nil
}

// checkout gives a copy of the model of its own, and makes it the working folder.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(model)))
	t.Chdir(dir)
	replace(t, "image/debian.lock", "MODEL", dir)
	return dir
}

func replace(t *testing.T, file, old, new string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

// mkimage runs the command in the working folder with what every build needs, and
// gives what it printed.
func mkimage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	var out bytes.Buffer
	args = append([]string{"-go", dir + "/go-copies", "-version", "v5.0.0", "-commit", "1a2b3c", "-date", "2026-12-02T01:00:00+01:00", "-out", "out"}, args...)
	err = run(context.Background(), args, &out)
	return out.String(), err
}

// build is mkimage, and should succeed.
func build(t *testing.T, args ...string) string {
	t.Helper()
	out, err := mkimage(t, args...)
	must(t, err)
	return out
}

var plainOnce sync.Once

// plain makes the working folder one in which a build without further arguments has
// been, for tests that only read.
func plain(t *testing.T) {
	t.Helper()
	dir := model + "-plain"
	plainOnce.Do(func() {
		must(t, os.CopyFS(dir, os.DirFS(model)))
		t.Chdir(dir)
		replace(t, "image/debian.lock", "MODEL", dir)
		must(t, os.WriteFile("said", []byte(build(t)), 0o644))
	})
	t.Chdir(dir)
}

// open gives the images in a built archive, one a platform.
func open(t *testing.T, name string) []v1.Image {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	must(t, untar(context.Background(), dir, func(w io.Writer) error {
		content, err := os.ReadFile("out/" + name + ".tar")
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}))
	all, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	list, err := all.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 1 {
		t.Fatalf("%s.tar has %d images; tools that load archives want one", name, len(list.Manifests))
	}
	index, err := all.ImageIndex(list.Manifests[0].Digest)
	must(t, err)
	list, err = index.IndexManifest()
	must(t, err)
	var images []v1.Image
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		must(t, err)
		images = append(images, image)
	}
	return images
}

// list prints a layer as `ls -l` would, with the content of small texts.
func list(t *testing.T, layer v1.Layer) string {
	t.Helper()
	content, err := layer.Uncompressed()
	must(t, err)
	defer content.Close()
	var text strings.Builder
	archive := tar.NewReader(content)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		must(t, err)
		fmt.Fprintf(&text, "%s %d:%d %s %s", h.FileInfo().Mode(), h.Uid, h.Gid, h.ModTime.UTC().Format("2006-01-02T15:04Z"), h.Name)
		if h.Linkname != "" {
			text.WriteString(" -> " + h.Linkname)
		}
		text.WriteString("\n")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
