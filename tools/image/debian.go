package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const (
	// aptHelper is the part of apt that fetches one file, through the proxies and
	// mirrors that this machine's apt is set up for.
	aptHelper = "/usr/lib/apt/apt-helper"

	// Paths in the package.
	debBinary    = "usr/bin/busybox"
	debCopyright = "usr/share/doc/busybox-static/copyright"
)

// A lock is the recorded package: image/debian.lock, written by image/lock.sh.
type lock struct {
	mirrors  []string
	applets  []string // names of busybox, itself excepted
	packages map[string]deb
}

// A deb is one Debian package for one architecture.
type deb struct{ arch, name, version, path, sha256 string }

// parseLock reads lines "mirror URL", "applets NAME..." and
// "deb ARCH PACKAGE VERSION PATH SHA256".
func parseLock(file string) (lock, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return lock{}, err
	}
	l := lock{packages: map[string]deb{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "mirror" && len(words) == 2:
			l.mirrors = append(l.mirrors, words[1])
		case words[0] == "applets":
			l.applets = words[1:]
		case words[0] == "deb" && len(words) == 6:
			l.packages[words[1]] = deb{words[1], words[2], words[3], words[4], words[5]}
		default:
			return lock{}, fmt.Errorf("%s:%d: want `mirror URL`, `applets NAME...` or `deb ARCH PACKAGE VERSION PATH SHA256`", file, n)
		}
	}
	return l, nil
}

// file is the package's file in dir, fetched from the first mirror that has it where
// it is not there yet. Its checksum is compared in any case.
func (d deb) file(ctx context.Context, mirrors []string, dir string) (string, error) {
	name := filepath.Join(dir, path.Base(d.path))
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		if err := d.fetch(ctx, mirrors, name); err != nil {
			return "", err
		}
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != d.sha256 {
		return "", fmt.Errorf("%s is not the recorded package: its SHA-256 should be %s; remove it to have it fetched again", name, d.sha256)
	}
	return name, nil
}

func (d deb) fetch(ctx context.Context, mirrors []string, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	partial := name + ".partial"
	defer func() { _ = os.Remove(partial + ".FAILED") }() // apt keeps what it refused
	var failed error
	for _, mirror := range mirrors {
		url := strings.TrimSuffix(mirror, "/") + "/" + d.path
		said, err := exec.CommandContext(ctx, aptHelper, "download-file", url, partial, "SHA256:"+d.sha256).CombinedOutput()
		if err == nil {
			return os.Rename(partial, name)
		}
		err = fmt.Errorf("%s: %w: %s", url, err, aptError(said))
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
	}
	return fmt.Errorf("%s %s for %s cannot be fetched; give another mirror (MIRROR=), put the file at %s, or record the present version with image/lock.sh: %w",
		d.name, d.version, d.arch, name, failed)
}

// aptError is the line of apt's output that says what went wrong.
func aptError(said []byte) string {
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "E:") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(string(said))
}

// unpack extracts the package file below dir.
func unpack(ctx context.Context, file, dir string) error {
	said, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", file, dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", file, err, bytes.TrimSpace(said))
	}
	return nil
}
