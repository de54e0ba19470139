package hostroot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestR20LinksOfTheHost: an absolute link leads to the host's file, not to ours.
func TestR20LinksOfTheHost(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/lib/cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/lib/cni/bridge"), []byte("the host's"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "opt/cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/lib/cni", filepath.Join(root, "opt/cni/bin")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/opt/cni/bin/bridge", "opt/cni/bin/bridge", "/opt/cni/bin/../../../../../usr/lib/cni/bridge"} {
		info, err := Stat(root, path)
		if err != nil || info.Size() != int64(len("the host's")) {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if _, err := Stat(root, "/opt/cni/bin/macvlan"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if info, err := Stat("", filepath.Join(root, "usr/lib/cni/bridge")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("on the host itself: %v, %v", info, err)
	}
}
