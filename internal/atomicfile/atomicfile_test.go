package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestR4WriteReplacesTheFileAndItsMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0o077))
	if err := Write(path, []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "new" || info.Mode() != 0o755 {
		t.Errorf("the file holds %q with mode %v", got, info.Mode())
	}
	if diff := cmp.Diff([]string{"f"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestR4LinkIsReplacedNotWrittenThrough(t *testing.T) {
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "link")
	if err := os.WriteFile(other, []byte("other's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(other); string(got) != "other's" {
		t.Errorf("the link's target holds %q now", got)
	}
	if info, _ := os.Lstat(link); !info.Mode().IsRegular() {
		t.Errorf("the link is a %v", info.Mode())
	}
}

func TestR4FailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o755); err != nil { // a folder cannot be replaced by a file
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EISDIR) {
		t.Errorf("got %v", err)
	}
	if err := Copy(filepath.Join(dir, "g"), filepath.Join(dir, "absent"), 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := Write(filepath.Join(dir, "absent", "f"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"f"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestR4RemoveStaleSparesTheYoungAndOthers(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for name, stale := range map[string]bool{".f.1.multus-tmp": true, ".f.2.multus-tmp": false, ".g.3.multus-tmp": true, "f": true} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if stale {
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := RemoveStale(filepath.Join(dir, "f"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".f.2.multus-tmp", ".g.3.multus-tmp", "f"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
}
