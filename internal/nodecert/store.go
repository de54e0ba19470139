package nodecert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/multus-thick/multus/internal/atomicfile"
)

// Names in the folder, those of Multus v4: the current pair is a link to one whose name
// ends with the time at which it was stored.
const (
	namePrefix = "multus-client-"
	nameSuffix = ".pem"
	timeFormat = "2006-01-02-15-04-05"

	folderMode = fs.FileMode(0o700)
	secretMode = fs.FileMode(0o600)
)

// store keeps certificate and key, in PEM, in a folder.
type store struct{ dir string }

func (s store) path(what string) string { return filepath.Join(s.dir, namePrefix+what+nameSuffix) }

// current is the file of the certificate and its key.
func (s store) current() string { return s.path("current") }

// load reads the current pair. The leaf is parsed.
func (s store) load() (*tls.Certificate, []byte, error) {
	content, err := os.ReadFile(s.current())
	if err != nil {
		return nil, nil, err
	}
	pair, err := parse(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.current(), err)
	}
	return pair, content, nil
}

func parse(content []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, err
	}
	pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	return &pair, err
}

// save makes a pair the current one. At each instant the current file is whole.
func (s store) save(content []byte, now time.Time) error {
	if err := os.MkdirAll(s.dir, folderMode); err != nil {
		return err
	}
	stored := s.path(now.UTC().Format(timeFormat))
	if err := atomicfile.Write(stored, content, secretMode); err != nil {
		return err
	}
	link := s.path("updated")
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(stored), link); err != nil { // the folder may have another path elsewhere
		return err
	}
	if err := os.Rename(link, s.current()); err != nil {
		return err
	}
	return s.prune()
}

// prune removes all stored pairs but two: somebody may be reading the last.
func (s store) prune() error {
	pairs, err := filepath.Glob(s.path("[0-9]*"))
	if err != nil {
		return err
	}
	slices.Sort(pairs)
	var errs []error
	for _, old := range pairs[:max(0, len(pairs)-2)] {
		errs = append(errs, os.Remove(old))
	}
	return errors.Join(errs...)
}
