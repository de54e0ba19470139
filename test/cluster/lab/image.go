package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images that every node has. Pods must not have them pulled: imagePullPolicy
// Never, or IfNotPresent.
const (
	// BusyboxImage has a shell and Debian's busybox. (Its wget -T crashes: write
	// timeout 3 wget instead.)
	BusyboxImage = "lab.example/busybox:1"
	// PauseImage is that of the sandboxes.
	PauseImage = "lab.example/pause:1"
)

// Image is a container image of one layer, made of files of this machine.
type Image struct {
	Ref        string                 // its name and tag
	Files      map[string]string      // path in the image: file here, whose mode it has
	Links      map[string]string      // path in the image: target of the symbolic link
	Dirs       map[string]fs.FileMode // empty folders; those of files and links are made anyway
	Entrypoint []string
	Cmd        []string
	User       string
}

// Write writes the archive that [Cluster.Load] loads. The same image gives the
// same bytes.
func (i Image) Write(w io.Writer) error {
	tag, err := name.NewTag(i.Ref, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Ref, err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: i.Entrypoint, Cmd: i.Cmd, User: i.User,
		},
	})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err == nil {
		err = tarball.Write(tag, img, w)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Ref, err)
	}
	return nil
}

// layer has its entries in order of their paths.
func (i Image) layer() (v1.Layer, error) {
	entries := map[string]tar.Header{}
	for dest, mode := range i.Dirs {
		entries[dest] = tar.Header{Typeflag: tar.TypeDir, Mode: tarMode(mode)}
	}
	for dest, target := range i.Links {
		entries[dest] = tar.Header{Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}
	}
	for dest, source := range i.Files {
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		entries[dest] = tar.Header{Typeflag: tar.TypeReg, Size: info.Size(), Mode: tarMode(info.Mode())}
	}
	for _, dest := range slices.Collect(maps.Keys(entries)) {
		for dir := path.Dir(dest); dir != "/"; dir = path.Dir(dir) {
			if _, ok := entries[dir]; !ok {
				entries[dir] = tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dest := range slices.Sorted(maps.Keys(entries)) {
		if err := i.add(w, dest, entries[dest]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil })
}

func (i Image) add(w *tar.Writer, dest string, header tar.Header) error {
	header.Name = strings.TrimPrefix(dest, "/")
	if header.Typeflag == tar.TypeDir {
		header.Name += "/"
	}
	if err := w.WriteHeader(&header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(i.Files[dest])
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// tarMode is the mode as tar has it; Go keeps the sticky bit elsewhere.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// baseImages are those that every node has from its start.
func (t tools) baseImages(ctx context.Context) ([]Image, error) {
	program := filepath.Join(t.Busybox, "busybox")
	applets, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("the applets of busybox: %w", err)
	}
	links := map[string]string{}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			links["/bin/"+applet] = "busybox"
		}
	}
	files := map[string]string{"/bin/busybox": program}
	return []Image{
		{
			Ref: BusyboxImage, Files: files, Links: links, Cmd: []string{"/bin/sh"},
			Dirs: map[string]fs.FileMode{"/tmp": 0o777 | fs.ModeSticky, "/etc": 0o755, "/root": 0o700, "/var": 0o755},
		},
		// The runtime ends a sandbox with SIGKILL, so this one need not heed others.
		{Ref: PauseImage, Files: files, Entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}, User: "65535:65535"},
	}, nil
}
