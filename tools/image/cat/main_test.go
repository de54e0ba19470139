package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestI3_ImageCat: files and standard input in their order; what cannot be read is
// said, does not stop the rest, and makes the exit code 1.
func TestI3_ImageCat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("in the file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	missing := file + ".missing"
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{nil, 0, "typed\n", ""},
		{[]string{file, "-", file}, 0, "in the file\ntyped\nin the file\n", ""},
		{[]string{missing, file}, 1, "in the file\n", "cat: open " + missing + ": no such file or directory\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(c.args, strings.NewReader("typed\n"), &stdout, &stderr)
		if code != c.code || stdout.String() != c.stdout || stderr.String() != c.stderr {
			t.Errorf("%q: %d, %q, %q; want %d, %q, %q", c.args, code, stdout.String(), stderr.String(), c.code, c.stdout, c.stderr)
		}
	}
}
