package install

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/multus-thick/multus/internal/atomicfile"
)

// Where an image keeps the plugins, and where it mounts the node's plugin folder.
const (
	DefaultSourceDir = "/usr/src/multus-cni/bin"
	DefaultDestDir   = "/host/opt/cni/bin"
)

const (
	mode     = 0o755
	staleAge = time.Hour
)

// All installs the plugins of a kind of installation, "thick" or "thin", from one
// folder into another, and tells out what it did, a line a plugin. Every plugin is
// tried; the errors are joined.
func All(kind, sourceDir, destDir string, out io.Writer) error {
	var plugins []string
	switch kind {
	case "thick":
		plugins = []string{"multus-shim", "passthru"}
	case "thin":
		plugins = []string{"multus", "passthru"}
	default:
		return fmt.Errorf("--type is %q: want thick or thin", kind)
	}
	var errs []error
	for _, plugin := range plugins {
		dest := filepath.Join(destDir, plugin)
		written, err := File(filepath.Join(sourceDir, plugin), dest)
		switch {
		case err != nil:
			errs = append(errs, err)
		case written:
			fmt.Fprintf(out, "%s installed\n", dest)
		default:
			fmt.Fprintf(out, "%s is up to date\n", dest)
		}
	}
	return errors.Join(errs...)
}

// File makes dest an executable with the content of source, and reports whether
// it had to write. At each instant dest is a complete file, the old or the new; a
// running old one keeps its inode. A link at dest is replaced by the file itself:
// what it points to may be another package's, or lie elsewhere on the host than it
// seems from a container. Several File at once are safe. After an error dest is
// what it was.
func File(source, dest string) (written bool, err error) {
	if err := atomicfile.RemoveStale(dest, staleAge); err != nil {
		return false, fmt.Errorf("cannot remove leftovers beside %s: %w", dest, err)
	}
	same, err := upToDate(source, dest)
	if err != nil || same {
		return false, err
	}
	return true, atomicfile.Copy(dest, source, mode)
}

func upToDate(source, dest string) (bool, error) {
	want, err := os.Stat(source)
	if err != nil {
		return false, fmt.Errorf("nothing to install: %w", err)
	}
	// Whatever dest is, if it cannot be seen to be equal it is written; that tells
	// what is wrong with the place.
	have, err := os.Lstat(dest)
	if err != nil || have.Mode() != mode || have.Size() != want.Size() {
		return false, nil
	}
	return sameContent(source, dest)
}

// sameContent compares in small pieces: an init container has little memory.
func sameContent(a, b string) (bool, error) {
	fileA, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer fileA.Close()
	fileB, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer fileB.Close()
	const piece = 64 << 10
	readA, readB := bufio.NewReaderSize(fileA, piece), bufio.NewReaderSize(fileB, piece)
	for {
		pieceA, errA := readA.Peek(piece)
		pieceB, errB := readB.Peek(piece)
		if !bytes.Equal(pieceA, pieceB) {
			return false, nil
		}
		if errA == io.EOF && errB == io.EOF {
			return true, nil
		}
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
		readA.Discard(piece) // peeked: cannot fail
		readB.Discard(piece)
	}
}
