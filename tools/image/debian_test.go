package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestI3_ImagePackageIsRecorded: the committed lock has one package for each platform, and the
// names that the images link to it.
func TestI3_ImagePackageIsRecorded(t *testing.T) {
	l, err := parseLock("../../image/debian.lock")
	must(t, err)
	var archs []string
	for _, p := range platforms() {
		d := l.packages[p.debian]
		if d.name != "busybox-static" || d.version == "" || !strings.HasSuffix(d.path, "_"+p.debian+".deb") || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(d.sha256) {
			t.Errorf("%s: recorded %+v", p, d)
		}
		archs = append(archs, p.debian)
	}
	slices.Sort(archs)
	if diff := cmp.Diff(archs, sorted(l.packages)); diff != "" {
		t.Errorf("architectures (-want +got):\n%s", diff)
	}
	for _, name := range []string{"cat", "cp", "sh", "nsenter", "ip"} {
		if !slices.Contains(l.applets, name) {
			t.Errorf("busybox has no %s", name)
		}
	}
	if len(l.mirrors) == 0 {
		t.Error("no mirror is recorded")
	}
}

// TestI3_ImageLockIsRead: a lock, and what is said of a wrong line.
func TestI3_ImageLockIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(file, []byte("# Why.\n\nmirror http://m\nmirror http://n\ndeb arm64 b 1:2 pool/b.deb ab12\napplets [ sh\n"), 0o644))
	got, err := parseLock(file)
	must(t, err)
	want := lock{[]string{"http://m", "http://n"}, []string{"[", "sh"}, map[string]deb{"arm64": {"arm64", "b", "1:2", "pool/b.deb", "ab12"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(lock{}, deb{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, os.WriteFile(file, []byte("mirror http://m\ndeb arm64 b\n"), 0o644))
	if _, err = parseLock(file); err == nil || err.Error() != file+":2: want `mirror URL`, `applets NAME...` or `deb ARCH PACKAGE VERSION PATH SHA256`" {
		t.Errorf("got %v", err)
	}
}

// mirrorOf serves the checkout's packages.
func mirrorOf(t *testing.T, dir string) string {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// TestI3_ImagePackageIsFetched: from the mirror that is given, else from a recorded one,
// once; a later build needs none.
func TestI3_ImagePackageIsFetched(t *testing.T) {
	dir := checkout(t)
	replace(t, "image/debian.lock", "mirror copy:"+dir, "mirror http://127.0.0.1:9/none")
	build(t, "-mirror", mirrorOf(t, dir)+"/", "-rootfs", "first")
	build(t, "-rootfs", "second")
}

// TestI3_ImagePackageIsChecked: what is not the recorded package never gets into an
// image, and the message says what helps.
func TestI3_ImagePackageIsChecked(t *testing.T) {
	dir := checkout(t)
	replace(t, "image/debian.lock", "mirror copy:"+dir, "mirror "+mirrorOf(t, dir))
	chosen, err := choose("")
	must(t, err)
	arch := chosen[0].debian
	name := debFile(arch)
	must(t, os.WriteFile("pool/"+name, []byte("another"), 0o644))
	_, err = mkimage(t)
	want := "busybox-static 1:1-2 for " + arch + " cannot be fetched; give another mirror (MIRROR=), put the file at out/debs/" + name +
		", or record the present version with image/lock.sh: http://"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if left, _ := filepath.Glob("out/debs/*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
	must(t, os.WriteFile("out/debs/"+name, []byte("another"), 0o644))
	_, err = mkimage(t)
	want = "out/debs/" + name + " is not the recorded package: its SHA-256 should be "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
