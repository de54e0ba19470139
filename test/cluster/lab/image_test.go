package lab

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestI3_ImageHoldsWhatItIsMadeOf, and the same bytes each time.
func TestI3_ImageHoldsWhatItIsMadeOf(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := Image{
		Ref: "lab.example/tool:1", Files: map[string]string{"/opt/tool/bin/program": program},
		Links: map[string]string{"/bin/sh": "../opt/tool/bin/program"}, Dirs: map[string]fs.FileMode{"/tmp": 0o777 | fs.ModeSticky, "/opt": 0o700},
		Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c"}, User: "1:2",
	}
	var first, second bytes.Buffer
	if err := image.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := image.Write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the second differs (%v)", err)
	}
	read := must(tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(first.Bytes())), nil }, nil))
	var got []string
	files := tar.NewReader(mutate.Extract(read))
	for {
		h, err := files.Next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprintf("%c %o %s %s%s", h.Typeflag, h.Mode, h.Name, h.Linkname, must(io.ReadAll(files))))
	}
	want := []string{
		"5 755 bin ", "2 777 bin/sh ../opt/tool/bin/program", "5 700 opt ", "5 755 opt/tool ", "5 755 opt/tool/bin ",
		"0 755 opt/tool/bin/program content", "5 1777 tmp ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	config := must(read.ConfigFile()).Config
	if d := cmp.Diff(v1.Config{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Entrypoint: image.Entrypoint, Cmd: image.Cmd, User: image.User,
	}, config); d != "" {
		t.Error(d)
	}
}
