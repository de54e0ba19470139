package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// tempSuffix ends the names of temporary files: no container runtime loads a file
// that is named so, and no program runs it.
const tempSuffix = ".multus-tmp"

// folderMode is that of a folder which Keep makes: what is in it is nobody else's.
const folderMode = fs.FileMode(0o700)

// Write replaces path with data. A link at path is itself replaced, never written
// through. After an error the old file is intact and no temporary file is left.
func Write(path string, data []byte, mode fs.FileMode) error {
	return replace(path, mode, func(w *os.File) error {
		_, err := w.Write(data)
		return err
	})
}

// Keep is Write where path is not a file with that data and that mode already, and makes
// its folder. It tells whether it wrote.
func Keep(path string, data []byte, mode fs.FileMode) (written bool, err error) {
	// A file that cannot be read is written; that tells what is wrong with the place.
	if info, err := os.Lstat(path); err == nil && info.Mode() == mode {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return false, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return false, err
	}
	return true, Write(path, data, mode)
}

// Copy replaces path with the content of the file source, like Write.
func Copy(path, source string, mode fs.FileMode) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	return replace(path, mode, func(w *os.File) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// RemoveStale removes temporary files for path that a killed writer left more than
// age ago. Younger ones may belong to a writer at work.
func RemoveStale(path string, age time.Duration) error {
	leftovers, err := filepath.Glob(pattern(path))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range leftovers {
		info, err := os.Lstat(name)
		if err == nil && time.Since(info.ModTime()) > age {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pattern is what os.CreateTemp and filepath.Glob make names from.
func pattern(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"+tempSuffix)
}

func replace(path string, mode fs.FileMode, fill func(*os.File) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(pattern(path)))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := finish(temp, path, mode, fill); err != nil {
		temp.Close() // closed already where the rename failed; that error says nothing
		return fmt.Errorf("cannot write %s: %w", path, errors.Join(err, os.Remove(temp.Name())))
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s is written but may not outlive a power loss: %w", path, err)
	}
	return nil
}

func finish(temp *os.File, path string, mode fs.FileMode, fill func(*os.File) error) error {
	if err := fill(temp); err != nil {
		return err
	}
	if err := temp.Chmod(mode); err != nil { // past the umask
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	// Closed before the rename: a file open for writing cannot be run (ETXTBSY).
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems cannot sync a folder
		return err
	}
	return nil
}
