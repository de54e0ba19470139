package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/hostroot"
)

// open opens the namespace at path, after a look that it is one: container
// runtimes and reboots leave plain files where a namespace was mounted, and entering
// one of those would end in an error that names neither.
func open(path string) (*os.File, error) { return openIn("", path) }

// openIn opens the namespace at a path below root, where links are followed as a
// process with that root would follow them: /var/run is one, and it is absolute.
func openIn(root, path string) (*os.File, error) {
	if path == "" {
		return nil, fmt.Errorf("%w: no path is given", attach.ErrNoNetNS)
	}
	f, err := hostroot.Open(root, path, unix.O_RDONLY|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%w: %w", attach.ErrNoNetNS, err)
	case err != nil:
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	if err := verify(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func verify(f *os.File) error {
	var at unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &at); err != nil {
		return fmt.Errorf("looking at %s: %w", f.Name(), err)
	}
	if at.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("%s is not a network namespace (a file on %s, where a namespace should be mounted): %w", f.Name(), fileSystem(uint32(at.Type)), attach.ErrNoNetNS)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil {
		return fmt.Errorf("asking %s for its kind of namespace: %w", f.Name(), err)
	}
	if kind != unix.CLONE_NEWNET {
		return fmt.Errorf("%s is not a network namespace (a namespace of another kind): %w", f.Name(), attach.ErrNoNetNS)
	}
	return nil
}

// fileSystem takes the part of Statfs_t.Type that has the same width everywhere.
func fileSystem(magic uint32) string {
	switch magic {
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.PROC_SUPER_MAGIC:
		return "proc"
	}
	return fmt.Sprintf("a file system of type %#x", magic)
}

// Do runs f in the namespace at path, on a thread of its own that ends with it:
// nothing that f does to its thread can reach the rest of the program. Goroutines
// that f starts are not in the namespace; child processes are.
func Do(path string, f func() error) error {
	ns, err := open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", path, err)
		}
		return f()
	})
}

// onOwnThread runs f in a goroutine that is locked to its thread and never unlocks
// it, which makes the Go runtime end the thread.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Create makes a new network namespace and mounts it at dir/name. The namespace
// lives until Delete. Wraps os.ErrExist where the name is taken.
func Create(dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a folder for network namespaces: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return "", fmt.Errorf("making a mount point for a network namespace: %w", err)
	}
	err = errors.Join(f.Close(), onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting a network namespace at %s: %w", path, err)
		}
		return nil
	}))
	if err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// Delete unmounts and removes what Create made. Absent is success; what is in the
// namespace ends with its last user.
func Delete(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted, not there
		return fmt.Errorf("unmounting network namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the mount point of a network namespace: %w", err)
	}
	return nil
}
