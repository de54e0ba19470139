// Package hostroot opens files of the host from inside the daemon's container, where
// the host's root is mounted at some folder: links are followed as a process of the
// host would follow them, for many (/var/run, a folder of plugins) are absolute.
package hostroot

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a path of the host whose root is at root, with flags of open(2); on the
// host itself root is empty. O_CLOEXEC is always set.
func Open(root, path string, flags int) (*os.File, error) {
	if root == "" {
		return os.OpenFile(path, flags, 0)
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), path, how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // a rename elsewhere raced with the look-up (openat2(2))
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// Stat is os.Stat for a path of the host.
func Stat(root, path string) (fs.FileInfo, error) {
	f, err := Open(root, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}
