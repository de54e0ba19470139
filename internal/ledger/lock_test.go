package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

func lockFile(l *Ledger, id string) string { return filepath.Join(l.dir, lockDir, id) }

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestR11LockExcludesOtherProcesses(t *testing.T) {
	l := ledger(t)
	holder := start(t, l, "hold", id).ready()
	taken(t, l.asking(id))
	lock(t, l, "another-sandbox").Release()
	if status := holder.end(); status != "exit status 0" {
		t.Errorf("the holder ended with %s", status)
	}
	held := lock(t, l, id) // it is free again
	other := start(t, l, "hold", id)
	held.Release()
	other.ready()
	taken(t, l.asking(id))
}

func TestR11LockExcludesInOneProcess(t *testing.T) {
	l := ledger(t)
	held := lock(t, l, id)
	taken(t, New(l.dir, "").asking(id))
	held.Release()
	lock(t, l, id).Release()
	if got := files(t, l.dir); !slices.Equal(got, []string{".lock/.gc"}) {
		t.Errorf("the lock left %q", got)
	}
}

func TestR11WaitingEndsWithTheContext(t *testing.T) {
	l := ledger(t)
	defer lock(t, l, id).Release()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		lock, err := l.Lock(ctx, id)
		if err == nil {
			lock.Release()
		}
		asked <- err
	}()
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), lockFile(l, id)) {
		t.Errorf("the error is %v, want the context's with the lock's path", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.LockAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}

// Who gives up waiting for a sandbox must not keep the GC lock.
func TestR11GivingUpLeavesNothingHeld(t *testing.T) {
	l := ledger(t)
	held := lock(t, l, id)
	taken(t, l.asking(id))
	held.Release()
	all, err := l.LockAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all.Release()
}

func TestR11GCLockIsAboveAll(t *testing.T) {
	l := ledger(t)
	one, another := start(t, l, "hold", id).ready(), start(t, l, "hold", "another").ready()
	taken(t, l.LockAll)
	one.end()
	taken(t, l.LockAll)
	another.end()
	all, err := l.LockAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if all.FD() != 0 {
		t.Errorf("the GC lock offers the descriptor %d to children", all.FD())
	}
	taken(t, l.asking(id))
	all.Release()
	gc := start(t, l, "holdall").ready()
	taken(t, l.asking(id))
	taken(t, l.LockAll)
	gc.end()
	lock(t, l, id).Release()
}

// A lock's file is removed and made anew all the time; no two may think that they
// hold the lock, each of a file of its own.
func TestR11UnlinkRace(t *testing.T) {
	const processes, goroutines, times = 3, 6, 25
	l := ledger(t)
	counter := filepath.Join(t.TempDir(), "counter")
	write(t, counter, []byte("0"))
	var others []*child
	for range processes {
		others = append(others, start(t, l, "count", id, counter, strconv.Itoa(goroutines*times)))
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			if err := count(New(l.dir, ""), id, counter, times); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range others {
		if err := c.Wait(); err != nil {
			t.Errorf("a child: %v", err)
		}
	}
	if got, want := string(content(t, counter)), strconv.Itoa((processes+1)*goroutines*times); got != want {
		t.Errorf("the counter is at %s, want %s", got, want)
	}
	if !gone(lockFile(l, id)) {
		t.Error("the lock's file is left")
	}
}

// An orphaned delegate holds the sandbox for as long as it runs.
func TestR11LockOutlivesOwner(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // so that the orphan is ours to wait for
		t.Fatal(err)
	}
	l := ledger(t)
	owner, heir := orphan(t, l, "orphan")
	kill(t, owner.Process.Pid)
	_, _ = owner.Process.Wait() // not Wait, which would end the heir's stdin
	taken(t, l.asking(id))
	kill(t, heir)
	reap(t, heir)
	lock(t, l, id).Release()
}

// reap waits for an orphan, which SIGKILL must have ended. A test that fails before
// leaves it to the end of its stdin.
func reap(t *testing.T, pid int) {
	t.Helper()
	var status unix.WaitStatus
	if got, err := unix.Wait4(pid, &status, 0, nil); got != pid || !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Errorf("the orphan ended with %v, %v", status, err)
	}
}

// orphan starts a process that takes the lock and one that inherits it from there.
func orphan(t *testing.T, l *Ledger, owned string) (owner *child, heir int) {
	t.Helper()
	owner = start(t, l, owned, id)
	heir, err := strconv.Atoi(owner.says())
	if err != nil {
		t.Fatal(err)
	}
	return owner, heir
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestR11EvictEndsTheHoldersAlone(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	l := ledger(t)
	owner, heir := orphan(t, l, "orphan")
	waiting := start(t, l, "open", id).ready()
	neighbour := start(t, l, "hold", "another").ready()
	kill(t, owner.Process.Pid)
	_, _ = owner.Process.Wait() // not Wait, which would end the heir's stdin
	if err := l.Evict(id); err != nil {
		t.Fatal(err)
	}
	lock(t, l, id).Release()
	reap(t, heir)
	for name, c := range map[string]*child{"one that waits": waiting, "another sandbox's": neighbour} {
		if status := c.end(); status != "exit status 0" {
			t.Errorf("%s ended with %s", name, status)
		}
	}
}

// A daemon that runs delegates itself outlives them: it serves the other pods too.
func TestR11EvictSparesTheDaemon(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	l := ledger(t)
	daemon, heir := orphan(t, l, "daemon")
	if err := l.Evict(id); err != nil {
		t.Fatal(err)
	}
	taken(t, l.asking(id)) // by the daemon
	if status := daemon.end(); status != "exit status 0" {
		t.Errorf("the daemon ended with %s", status)
	}
	lock(t, l, id).Release() // the heir is gone, or it would hold it
	reap(t, heir)
}

// This process holds the lock: it stays, and its delegates go.
func TestR11EvictSparesItself(t *testing.T) {
	l := ledger(t)
	held := lock(t, l, id)
	defer held.Release()
	stdin, closer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	delegate, err := os.StartProcess(os.Args[0], []string{os.Args[0], "child", "linger", l.dir}, &os.ProcAttr{
		Files: []*os.File{stdin, nil, os.Stderr, held.(*flocked).file},
	})
	if err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	if err := l.Evict(id); err != nil {
		t.Fatal(err)
	}
	state, err := delegate.Wait()
	if err != nil || state.String() != "signal: killed" {
		t.Errorf("the delegate ended with %v, %v", state, err)
	}
	taken(t, l.asking(id))
}

// What is left to do is found by its lock's file, whoever looked at it in between.
func TestR16UnfinishedSandboxesAreFound(t *testing.T) {
	l := ledger(t)
	find := func(want ...string) {
		t.Helper()
		got, err := New(l.dir, "").Unfinished()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("unfinished are %q, %v; want %q", got, err, want)
		}
	}
	grow := func(id string) {
		t.Helper()
		old := time.Now().Add(-sweepAge - time.Second)
		if err := os.Chtimes(lockFile(l, id), old, old); err != nil {
			t.Fatal(err)
		}
	}
	under := func(states ...attach.State) {
		t.Helper()
		l := New(l.dir, "") // each operation is a process of its own
		defer lock(t, l, id).Release()
		for _, s := range states {
			r := record(t)
			r.State = s
			save(t, l, r)
		}
	}
	under(attach.Intent)
	find() // not before its time
	grow(id)
	find(id)
	under() // CHECK, or a sweep that could do nothing
	find()  // others have their turn first
	grow(id)
	find(id)
	taken(t, func(ctx context.Context) (attach.Lock, error) { // an orphan holds it
		defer lock(t, l, id).Release()
		grow(id)
		return l.Lock(ctx, id)
	})
	find()
	under(attach.Intent, attach.Attached)
	if !gone(lockFile(l, id)) {
		t.Error("the lock's file of a sandbox that is attached is left")
	}
	under(attach.Detaching)
	grow(id)
	find(id)

	held := lock(t, l, id)
	if err := l.Remove(id); err != nil {
		t.Fatal(err)
	}
	held.Release()
	if !gone(lockFile(l, id)) {
		t.Error("the lock's file of a sandbox that is no more is left")
	}
	find()
}

// Of a caller that was killed nothing is left but the lock's file and the intent.
func TestR16KilledCallerIsFound(t *testing.T) {
	l := ledger(t)
	intent := record(t)
	intent.State = attach.Intent
	caller := start(t, l, "hold", id).ready()
	save(t, l, intent)
	kill(t, caller.Process.Pid)
	_ = caller.Wait()
	old := time.Now().Add(-sweepAge - time.Second)
	if err := os.Chtimes(lockFile(l, id), old, old); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Unfinished(); err != nil || !slices.Equal(got, []string{id}) {
		t.Errorf("unfinished are %q, %v", got, err)
	}
}

// A sandbox of v4, of the cache, or with a damaged record has nothing that a sweep may do.
func TestR15ForeignSandboxesAreNotSwept(t *testing.T) {
	l := v4Node(t)
	entry(t, l, "n-"+id+"-eth0", nil)
	write(t, filepath.Join(l.dir, "damaged"), []byte("{"))
	for _, id := range []string{v4ID, id, "damaged", "unknown"} {
		lock(t, l, id).Release()
		if !gone(lockFile(l, id)) {
			t.Errorf("the lock's file of %s is left", id)
		}
	}
}

func TestR11LockErrors(t *testing.T) {
	l := ledger(t)
	write(t, filepath.Join(l.dir, lockDir), nil)
	_, err := l.Lock(t.Context(), id)
	if want := fmt.Sprintf("the lock's folder: mkdir %s: not a directory", filepath.Join(l.dir, lockDir)); fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	l = ledger(t)
	lock(t, l, "other").Release()
	if err := os.Symlink("/dev/null", lockFile(l, id)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock(t.Context(), id); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link in the lock's place gives %v", err)
	}
	if _, err := l.LockAll(t.Context()); err != nil {
		t.Errorf("a failed Lock keeps the GC lock: %v", err)
	}
}

// A delegate's descendant that outlives an operation which ended well still holds
// the sandbox: a new file would be a second lock.
func TestR11LockOutlivesRelease(t *testing.T) {
	l := ledger(t)
	held := lock(t, l, id)
	stdin, closer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	delegate, err := os.StartProcess(os.Args[0], []string{os.Args[0], "child", "linger", l.dir}, &os.ProcAttr{
		Files: []*os.File{stdin, nil, os.Stderr, held.(*flocked).file},
	})
	if err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	held.Release()
	taken(t, l.asking(id))
	closer.Close()
	if _, err := delegate.Wait(); err != nil {
		t.Fatal(err)
	}
	lock(t, l, id).Release()
	if !gone(lockFile(l, id)) {
		t.Error("the lock's file is left")
	}
}

// TestI4_Lockable: before the first operation and while another holds the lock above all, and
// without leaving anything.
func TestI4_Lockable(t *testing.T) {
	l := ledger(t)
	if err := l.Lockable(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Lockable(); err != nil || !gone(filepath.Join(l.dir, lockDir)) {
		t.Errorf("before the first operation: %v", err)
	}
	all, err := l.LockAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Lockable(); err != nil {
		t.Errorf("while another holds it: %v", err)
	}
	all.Release()
}
