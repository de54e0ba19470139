package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

// gcLockName is the file of the lock above all. A container id cannot begin with a dot.
const gcLockName = ".gc"

// sweepAge is how long a lock file must have been left alone before its sandbox
// counts as unfinished.
const sweepAge = 10 * time.Minute

// Waiting for a lock polls: a blocking flock cannot be interrupted.
const (
	firstPoll = time.Millisecond
	slowPoll  = 50 * time.Millisecond
)

// flocked is a held lock: the GC lock shared, and the sandbox's own. Children that
// inherit the descriptor hold it too (flock belongs to the open file description).
type flocked struct {
	ledger *Ledger
	id     string // empty for the GC lock alone
	gc     *os.File
	file   *os.File // nil for the GC lock alone
}

// Lock is attach.Ledger's.
func (l *Ledger) Lock(ctx context.Context, id string) (attach.Lock, error) {
	if _, err := l.path(id); err != nil {
		return nil, err
	}
	gc, err := l.flock(ctx, gcLockName, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	file, err := l.flock(ctx, id, unix.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, gc.Close())
	}
	if err := l.sign(file); err != nil {
		return nil, errors.Join(err, file.Close(), gc.Close())
	}
	return &flocked{l, id, gc, file}, nil
}

// LockAll is attach.Ledger's.
func (l *Ledger) LockAll(ctx context.Context) (attach.Lock, error) {
	gc, err := l.flock(ctx, gcLockName, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &flocked{ledger: l, gc: gc}, nil
}

// resident is the content of a lock's file whose taker serves the whole node.
const resident = "resident"

// Resident makes l the ledger of a daemon: Evict ends the delegates that it runs, and
// never the daemon itself.
func (l *Ledger) Resident() *Ledger {
	l.resident = true
	return l
}

// sign writes into a lock's file who has taken it.
func (l *Ledger) sign(lock *os.File) error {
	err := lock.Truncate(0)
	if err == nil && l.resident {
		_, err = lock.WriteAt([]byte(resident), 0)
	}
	if err != nil {
		return fmt.Errorf("the lock's file: %w", err)
	}
	return nil
}

// FD is attach.Lock's.
func (f *flocked) FD() uintptr {
	if f.file == nil {
		return 0
	}
	return f.file.Fd()
}

// Release is attach.Lock's. The lock's file goes with it, except that of a sandbox
// whose record says that something is left to do, whoever left it: Unfinished finds it.
func (f *flocked) Release() {
	if f.file != nil {
		unfinished := f.ledger.unfinished(f.id)
		_ = f.file.Close()
		if !unfinished {
			removeFree(f.file.Name())
		}
	}
	_ = f.gc.Close()
}

// removeFree removes a lock's file if nobody holds the lock. A delegate that outlives
// its caller does: without its file, the next caller would lock another one.
func removeFree(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // removed by the next holder
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && current(f, path) {
		_ = os.Remove(path) // under the lock: who waits for it looks again
	}
}

// flock opens and locks a file of the lock folder. A file that was removed or
// replaced while we waited is no lock: another process may hold a new one.
func (l *Ledger) flock(ctx context.Context, name string, how int) (*os.File, error) {
	dir := filepath.Join(l.dir, lockDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the lock's folder: %w", err)
	}
	path := filepath.Join(dir, name)
	for wait := firstPoll; ; wait = min(2*wait, slowPoll) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("the lock's file: %w", err)
		}
		_ = os.Chtimes(path, time.Time{}, time.Now()) // to ask is to touch: Unfinished begins to count again
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil && current(f, path) {
			return f, nil
		}
		_ = f.Close()
		switch {
		case err == nil || errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("%s cannot be locked, cniDir must be on a file system with flock: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Lockable tells, by an error, that the ledger's file system cannot lock. It writes
// nothing and excludes nobody for longer than this call.
func (l *Ledger) Lockable() error {
	path := filepath.Join(l.dir, lockDir, gcLockName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // no operation has run yet
		path = l.dir
		f, err = os.Open(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s cannot be locked: %w", path, err)
	}
	return nil
}

func current(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(held, there)
}

// Unfinished is attach.Ledger's: lock files that stayed behind and that nobody has
// asked for in ten minutes, so that one which cannot be finished does not keep others
// from their turn.
func (l *Ledger) Unfinished() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.dir, lockDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && containerID.MatchString(e.Name()) && time.Since(info.ModTime()) > sweepAge {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// Evict is attach.Ledger's. The holders are found by what the kernel tells of their
// descriptors: exactly them, no process that came by a recorded number later, and
// none that only waits (design, rule 11, speaks of a recorded process group).
func (l *Ledger) Evict(id string) error {
	if _, err := l.path(id); err != nil {
		return err
	}
	lock, err := os.Stat(filepath.Join(l.dir, lockDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	signed, err := os.ReadFile(filepath.Join(l.dir, lockDir, id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	spareTaker := string(signed) == resident
	var failed []error
	for _, proc := range processes {
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil && pid != os.Getpid() {
			failed = append(failed, evict(pid, proc, lock, spareTaker))
		}
	}
	return errors.Join(failed...)
}

// evict ends a process that holds the lock. The process is opened before it is
// looked at, so that none is ended that took over its number in between.
func evict(pid int, proc string, lock fs.FileInfo, spareTaker bool) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil // it has ended
	}
	defer p.Release()
	taker, holds := heldBy(proc, lock)
	if !holds || spareTaker && taker == pid {
		return nil
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the process %d: %w", pid, err)
	}
	return nil
}

// heldBy tells whether one of a process's descriptors holds the lock, its own or one
// that it inherited, and which process took it. Descriptors without a flock are not
// looked at further: to stat a file on a server that is away takes for ever.
func heldBy(proc string, lock fs.FileInfo) (taker int, holds bool) {
	fds, err := os.ReadDir(filepath.Join(proc, "fdinfo"))
	if err != nil {
		return 0, false // it has ended
	}
	for _, fd := range fds {
		told, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		_, flock, found := strings.Cut(string(told), "FLOCK")
		if err != nil || !found {
			continue
		}
		if file, err := os.Stat(filepath.Join(proc, "fd", fd.Name())); err == nil && os.SameFile(file, lock) {
			_, _ = fmt.Sscanf(flock, " ADVISORY WRITE %d", &taker) // 0 where the kernel words it otherwise
			return taker, true
		}
	}
	return 0, false
}
