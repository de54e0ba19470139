package install

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// program writes a program that can be run: a system tool, with text after it that
// the loader does not mind.
func program(t *testing.T, path, tool, text string) {
	t.Helper()
	from, err := exec.LookPath(tool)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, text...), 0o700); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func folder(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// mountTmpfs needs root, as all tests here do.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("this test mounts a tmpfs and needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestMain lets the test binary be an installer of
// $INSTALL_FILE. In one process with
// others that start programs, a file being written can leak into a child for a
// moment and make it "busy"; an installer starts none.
func TestMain(m *testing.M) {
	if source := os.Getenv("INSTALL_FILE"); source != "" {
		if _, err := File(source, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestT3OverARunningBinary(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	source, dest := filepath.Join(src, "multus-shim"), filepath.Join(dst, "multus-shim")
	program(t, source, "true", "version 2")
	program(t, dest, "sleep", "version 1")
	running := exec.Command(dest, "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer running.Wait()
	defer running.Process.Kill()
	before := stat(t, dest)

	// The path holds a complete program at each instant: the old or the new one runs.
	stop, polled := make(chan struct{}), make(chan error)
	go func() {
		for {
			if err := exec.Command(dest, "0").Run(); err != nil {
				polled <- err
				return
			}
			select {
			case <-stop:
				polled <- nil
				return
			default:
			}
		}
	}()
	for range 5 {
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				installer := exec.Command(os.Args[0], dest)
				installer.Env = []string{"INSTALL_FILE=" + source}
				if out, err := installer.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wait.Wait()
	}
	close(stop)
	if err := <-polled; err != nil {
		t.Errorf("the path did not hold a program: %v", err)
	}
	if !bytes.Equal(read(t, dest), read(t, source)) {
		t.Error("the new version is not there")
	}
	if after := stat(t, dest); os.SameFile(before, after) || after.Mode() != 0o755 {
		t.Errorf("same inode %t, mode %v", os.SameFile(before, after), after.Mode())
	}
	if err := running.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the old version stopped running: %v", err)
	}
	if diff := cmp.Diff([]string{"multus-shim"}, folder(t, dst)); diff != "" {
		t.Error(diff)
	}
}

func TestT3EqualContentIsNotRewritten(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3<<13) // several pieces of the comparison
	tests := map[string]struct {
		installed string
		mode      os.FileMode
		written   bool
	}{
		"equal":              {big, 0o755, false},
		"last byte differs":  {big[:len(big)-1] + "x", 0o755, true},
		"first byte differs": {"x" + big[1:], 0o755, true},
		"longer":             {big + "x", 0o755, true},
		"cannot be run":      {big, 0o644, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, dest := filepath.Join(dir, "source"), filepath.Join(dir, "dest")
			for path, content := range map[string]string{source: big, dest: tt.installed} {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dest, tt.mode); err != nil {
				t.Fatal(err)
			}
			before := stat(t, dest)
			written, err := File(source, dest)
			if err != nil {
				t.Fatal(err)
			}
			after := stat(t, dest)
			if written != tt.written || os.SameFile(before, after) == tt.written {
				t.Errorf("written %t, same inode %t, want written %t", written, os.SameFile(before, after), tt.written)
			}
			if string(read(t, dest)) != big || after.Mode() != 0o755 {
				t.Errorf("wrong content or mode %v", after.Mode())
			}
		})
	}
}

func TestT3LinkIsReplacedEvenWhenEqual(t *testing.T) {
	dir := t.TempDir()
	source, dest, others := filepath.Join(dir, "source"), filepath.Join(dir, "dest"), filepath.Join(dir, "others")
	for _, path := range []string{source, others} {
		if err := os.WriteFile(path, []byte("program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{others, filepath.Join(dir, "nowhere")} {
		os.Remove(dest)
		if err := os.Symlink(target, dest); err != nil {
			t.Fatal(err)
		}
		if _, err := File(source, dest); err != nil {
			t.Fatal(err)
		}
		if !stat(t, dest).Mode().IsRegular() || string(read(t, dest)) != "program" {
			t.Errorf("the link to %s was not replaced", target)
		}
	}
	if diff := cmp.Diff([]string{"dest", "others", "source"}, folder(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestT3NoRoomAndNoWriting(t *testing.T) {
	src := t.TempDir()
	source := filepath.Join(src, "p")
	if err := os.WriteFile(source, bytes.Repeat([]byte("new "), 64<<10), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error
	}{
		"disk full": {func(*testing.T, string) {}, unix.ENOSPC},
		"read-only": {func(t *testing.T, dir string) {
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}, unix.EROFS},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mountTmpfs(t, dir, "size=128k")
			dest := filepath.Join(dir, "p")
			if err := os.WriteFile(dest, []byte("old"), 0o755); err != nil {
				t.Fatal(err)
			}
			tt.prepare(t, dir)
			if written, err := File(source, dest); !errors.Is(err, tt.want) {
				t.Errorf("written %t, error %v, want %v", written, err, tt.want)
			}
			if got := string(read(t, dest)); got != "old" {
				t.Errorf("the old file holds %d bytes now", len(got))
			}
			if diff := cmp.Diff([]string{"p"}, folder(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestT3StaleTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	source, stale := filepath.Join(dir, "source"), filepath.Join(dir, ".dest.123.multus-tmp")
	for _, path := range []string{source, stale} {
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * staleAge)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := File(source, filepath.Join(dir, "dest")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dest", "source"}, folder(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestC1_1WhatIsInstalled(t *testing.T) {
	image := []string{"install_multus", "multus", "multus-daemon", "multus-shim", "passthru"}
	tests := map[string]struct {
		image   []string
		want    []string
		out     string
		failure string
	}{
		"thick":     {image, []string{"multus-shim", "passthru"}, "DST/multus-shim installed\nDST/passthru installed\n", ""},
		"thin":      {image, []string{"multus", "passthru"}, "DST/multus installed\nDST/passthru installed\n", ""},
		"":          {image, []string{}, "", `--type is "": want thick or thin`},
		"Thick":     {image, []string{}, "", `--type is "Thick": want thick or thin`},
		"thick\x00": {[]string{"passthru"}, []string{"passthru"}, "DST/passthru installed\n", "nothing to install: stat SRC/multus-shim: no such file or directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			for _, f := range tt.image {
				if err := os.WriteFile(filepath.Join(src, f), []byte(f), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			kind := strings.TrimSuffix(name, "\x00") // the same kind, from an image that lacks a file
			var out strings.Builder
			failure := ""
			if err := All(kind, src, dst, &out); err != nil {
				failure = fmt.Sprint(err)
			}
			place := strings.NewReplacer(src, "SRC", dst, "DST")
			got := []string{place.Replace(failure), place.Replace(out.String())}
			if diff := cmp.Diff([]string{tt.failure, tt.out}, got); diff != "" {
				t.Error(diff)
			}
			if got := folder(t, dst); !slices.Equal(got, tt.want) {
				t.Errorf("installed %v, want %v", got, tt.want)
			}
		})
	}
}
