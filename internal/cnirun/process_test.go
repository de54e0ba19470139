package cnirun

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// fileLock is the sandbox's lock as the ledger would hand it over.
type fileLock struct{ *os.File }

func (l fileLock) Release()    { l.Close() }
func (l fileLock) FD() uintptr { return l.Fd() }

func openLock(path string, how int) (fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), how)
	}
	return fileLock{f}, err
}

func single(config cniconf.Config, lock attach.Lock) attach.Attachment {
	return attach.Attachment{
		Attachment: plan.Attachment{Network: "n", Interface: "net1", Config: config},
		Sandbox:    attach.Sandbox{ContainerID: "cid", NetNS: "/run/netns/x"}, Lock: lock,
	}
}

// killDescendant ends the descendant of a fake plugin, where there is one.
func (r *rig) killDescendant() {
	raw, _ := os.ReadFile(filepath.Join(r.dir, "descendant"))
	if pid, err := strconv.Atoi(string(raw)); err == nil {
		unix.Kill(pid, unix.SIGKILL)
	}
}

const one = `{"cniVersion":"1.0.0","name":"n","type":"first"}`

// lockComesFree waits until nobody holds the lock, which tells that all who
// inherited it are dead.
func (r *rig) lockComesFree(path string) {
	r.Helper()
	free := make(chan error, 1)
	go func() {
		l, err := openLock(path, unix.LOCK_EX)
		l.Release()
		free <- err
	}()
	select {
	case err := <-free:
		r.must(err)
	case <-time.After(20 * time.Second):
		r.killDescendant()
		r.Fatal("a process still holds the lock")
	}
}

func TestR12TimeLimitEndsTheGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"first": {"ADD": {Descendant: true, Stderr: "waiting for an address\n", Hang: true}}})
	r.DelegateTimeout = 2 * time.Second
	path := filepath.Join(r.dir, "lock")
	lock, err := openLock(path, unix.LOCK_EX)
	r.must(err)
	_, err = New(r.Options).Add(t.Context(), single(parse(t, one), lock))
	r.fails(err, `plugin "first" (ADD): ended after its time limit of 2s; waiting for an address | x`, types.ErrTryAgainLater)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the context's error", err)
	}
	if log := r.log(); len(log) != 1 || !log[0].LockFD {
		t.Errorf("the plugin must inherit the lock: %+v", log)
	}
	lock.Release()
	r.lockComesFree(path)
}

func TestR12EndOfContextEndsTheGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"first": nil})
	fifo := filepath.Join(r.dir, "fifo")
	r.must(unix.Mkfifo(fifo, 0o600))
	r.write("first.json", string(cniconf.Quote(map[string]script{"DEL": {Descendant: true, Fifo: fifo}})))
	path := filepath.Join(r.dir, "lock")
	lock, err := openLock(path, unix.LOCK_EX)
	r.must(err)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the caller left")
	go func() {
		meet, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the plugin is there
		cancel(errors.Join(left, err))
		if err == nil {
			defer meet.Close()
		}
		<-t.Context().Done()
	}()
	err = New(r.Options).Del(ctx, single(parse(t, one), lock), nil)
	r.fails(err, `plugin "first" (DEL): ended because the time of the whole operation was up or its caller left`, types.ErrTryAgainLater)
	if !errors.Is(err, left) {
		t.Errorf("%v does not wrap the cause", err)
	}
	lock.Release()
	r.lockComesFree(path)

	err = New(r.Options).Del(ctx, single(parse(t, one), nil), nil)
	r.fails(err, `plugin "first" (DEL): ended because the time of the whole operation was up or its caller left`, types.ErrTryAgainLater)
}

func TestI2_DescendantThatKeepsThePipes(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"first": {"ADD": {Stdout: `{}`, Descendant: true}}})
	t.Cleanup(r.killDescendant)
	path := filepath.Join(r.dir, "lock")
	lock, err := openLock(path, unix.LOCK_EX)
	r.must(err)
	began := time.Now()
	got, err := New(r.Options).Add(t.Context(), single(parse(t, one), lock))
	r.must(err)
	if string(got) != `{"cniVersion":"1.0.0"}` || time.Since(began) > 20*time.Second {
		t.Errorf("got %s after %s", got, time.Since(began))
	}
	lock.Release()
	if l, err := openLock(path, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		l.Release()
		t.Errorf("the descendant must hold the lock: %v", err)
	}
}

// actAsCaller runs an ADD as the plugin on the host would, until it is killed.
func actAsCaller() {
	dir := os.Getenv("FAKE_DIR")
	lock, err := openLock(filepath.Join(dir, "lock"), unix.LOCK_EX)
	if err != nil {
		panic(err)
	}
	config, err := cniconf.Parse([]byte(one))
	if err != nil {
		panic(err)
	}
	_, err = New(Options{Path: []string{filepath.Join(dir, "bin")}, Env: []string{"FAKE_DIR=" + dir}}).Add(context.Background(), single(config, lock))
	panic(err) // the test kills us before
}

func TestR11LockOutlivesOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"first": nil})
	fifo, path := filepath.Join(r.dir, "fifo"), filepath.Join(r.dir, "lock")
	r.must(unix.Mkfifo(fifo, 0o600))
	r.write("first.json", string(cniconf.Quote(map[string]script{"ADD": {Stdout: `{}`, Fifo: fifo}})))
	self, err := os.Executable()
	r.must(err)
	caller := exec.Command(self)
	caller.Env = []string{"FAKE_ROLE=caller", "FAKE_DIR=" + r.dir}
	r.must(caller.Start())
	meet, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the plugin is there
	r.must(err)
	r.must(caller.Process.Kill())
	caller.Wait()

	if l, err := openLock(path, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		l.Release()
		t.Errorf("the orphaned plugin must hold the lock: %v", err)
	}
	meet.Close() // the plugin goes on and ends
	r.lockComesFree(path)
}

// busy makes a plugin whose binary is still open for writing.
func (r *rig) busy(name string) *os.File {
	self, err := os.Open("/proc/self/exe")
	r.must(err)
	defer self.Close()
	f, err := os.OpenFile(filepath.Join(r.dir, "bin", name), os.O_CREATE|os.O_WRONLY, 0o755)
	r.must(err)
	_, err = io.Copy(f, self)
	r.must(err)
	return f
}

func TestT3BusyBinaryIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"second": nil})
	r.write("first.json", string(cniconf.Quote(answers(`{}`))))
	writer := r.busy("first")
	time.AfterFunc(200*time.Millisecond, func() { writer.Close() })
	_, err := New(r.Options).Add(t.Context(), single(parse(t, one), nil))
	r.must(err)
}

func TestT3BusyBinaryHonoursTheTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"second": nil})
	defer r.busy("first").Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := New(r.Options).Add(ctx, single(parse(t, one), nil))
	r.fails(err, `plugin "first" (ADD): ended because the time of the whole operation was up or its caller left`, types.ErrTryAgainLater)

	_, err = New(r.Options).Add(t.Context(), single(parse(t, one), nil))
	r.fails(err, `plugin "first" (ADD): $DIR/bin/first is still being written after 5s`, types.ErrTryAgainLater)
	if !errors.Is(err, unix.ETXTBSY) {
		t.Errorf("%v does not wrap ETXTBSY", err)
	}
}

func TestI2_NotAProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]map[string]script{"second": nil})
	path := r.write("bin/first", "text\n")
	r.must(os.Chmod(path, 0o755))
	_, err := New(r.Options).Add(t.Context(), single(parse(t, one), nil))
	r.fails(err, `plugin "first" (ADD): cannot be run; fork/exec $DIR/bin/first: exec format error`, types.ErrInternal)
}
