package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
)

// socketListener is the daemon's socket. It takes connections of root alone.
type socketListener struct {
	*net.UnixListener
	path  string
	made  os.FileInfo
	close sync.Once
}

// listen puts a socket in place. It is bound beside its place and renamed, so that
// a daemon that is going and one that is coming never take each other's away.
func listen(dir string) (*socketListener, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("key \"socketDir\": %w", err)
	}
	path := filepath.Join(dir, api.SocketName)
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("key \"socketDir\": %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("key \"socketDir\": %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("key \"socketDir\": %w", err), l.Close())
	}
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("key \"socketDir\": %w", err), l.Close())
	}
	return &socketListener{UnixListener: l, path: path, made: made}, nil
}

// Accept takes the next connection of a process of root; others are closed unheard.
// The file's mode says the same, but a mode can be changed.
func (l *socketListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if peerIsRoot(c) {
			return c, nil
		}
		_ = c.Close() // it has no say
	}
}

func peerIsRoot(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && credErr == nil && cred.Uid == 0
}

// gone tells whether there is no socket in its place, ours or another's.
func (l *socketListener) gone() bool {
	_, err := os.Lstat(l.path)
	return errors.Is(err, os.ErrNotExist)
}

// Close stops listening and removes the socket, if it is still ours. It does so once: a
// socket that another daemon makes after that may have the inode that ours had.
func (l *socketListener) Close() (err error) {
	l.close.Do(func() {
		now, statErr := os.Lstat(l.path)
		if err = statErr; err == nil && os.SameFile(now, l.made) {
			err = os.Remove(l.path)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		err = errors.Join(err, l.UnixListener.Close())
	})
	return err
}
