package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
)

// The test binary is also the other processes of the tests: with a first argument
// "child" it does what the second says.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		if err := children[os.Args[2]](New(os.Args[3], "boot"), os.Args[4:]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

var children = map[string]func(*Ledger, []string) error{
	// hold a sandbox's lock until stdin ends
	"hold": func(l *Ledger, args []string) error {
		lock, err := l.Lock(context.Background(), args[0])
		if err != nil {
			return err
		}
		defer lock.Release()
		return untilTold()
	},
	// holdall: hold the GC lock until stdin ends
	"holdall": func(l *Ledger, _ []string) error {
		lock, err := l.LockAll(context.Background())
		if err != nil {
			return err
		}
		defer lock.Release()
		return untilTold()
	},
	// open the lock's file as one that waits does, without the lock
	"open": func(l *Ledger, args []string) error {
		f, err := os.OpenFile(filepath.Join(l.dir, lockDir, args[0]), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return untilTold()
	},
	// wait for stdin to end, with whatever was inherited
	"linger": func(*Ledger, []string) error { return untilTold() },
	// daemon is an orphan's owner that serves the whole node
	"daemon": func(l *Ledger, args []string) error { return withHeir(l.Resident(), args) },
	// orphan: take the lock, and start a process that inherits it
	"orphan": withHeir,
	// add to a counter under the lock, so often
	"count": func(l *Ledger, args []string) error {
		times, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return count(l, args[0], args[1], times)
	},
}

func withHeir(l *Ledger, args []string) error {
	lock, err := l.Lock(context.Background(), args[0])
	if err != nil {
		return err
	}
	defer lock.Release()
	fd, err := unix.Dup(int(lock.FD()))
	if err != nil {
		return err
	}
	heir := exec.Command(os.Args[0], "child", "linger", l.dir)
	heir.Stdin = os.Stdin
	heir.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "lock")}
	if err := heir.Start(); err != nil {
		return err
	}
	fmt.Println(heir.Process.Pid)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, heir.Process.Release())
}

func untilTold() error {
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// count reads a number and writes the next one, which loses some where two do it at once.
func count(l *Ledger, id, file string, times int) error {
	for range times {
		lock, err := l.Lock(context.Background(), id)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			var n int
			_, err = fmt.Sscan(string(text), &n)
			err = errors.Join(err, os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600))
		}
		lock.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// child is a process of the tests.
type child struct {
	*exec.Cmd
	t     *testing.T
	stdin io.Closer
	out   *bufio.Reader
}

func start(t *testing.T, l *Ledger, verb string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"child", verb, l.dir}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, t, stdin, bufio.NewReader(stdout)}
	t.Cleanup(func() {
		stdin.Close()
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// says reads a line of the child.
func (c *child) says() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the child said %q and ended: %v", line, err)
	}
	return strings.TrimSpace(line)
}

func (c *child) ready() *child {
	c.t.Helper()
	if line := c.says(); line != "ready" {
		c.t.Fatalf("the child says %q", line)
	}
	return c
}

// end lets the child end and tells how it did.
func (c *child) end() string {
	c.stdin.Close()
	_ = c.Wait()
	return c.ProcessState.String()
}

const id = "0123456789abcdef"

func ledger(t *testing.T) *Ledger {
	t.Helper()
	return New(filepath.Join(t.TempDir(), "multus"), "boot-1")
}

func config(t testing.TB, text string) cniconf.Config {
	t.Helper()
	c, err := cniconf.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s %v", text, err)
	}
	return c
}

func lock(t *testing.T, l *Ledger, id string) attach.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// taken asks for a lock that another holds, long enough to see that it is held.
func taken(t *testing.T, ask func(context.Context) (attach.Lock, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	lock, err := ask(ctx)
	if err == nil {
		lock.Release()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asking for a held lock gives %v, want the context's error", err)
	}
}

func (l *Ledger) asking(id string) func(context.Context) (attach.Lock, error) {
	return func(ctx context.Context) (attach.Lock, error) { return l.Lock(ctx, id) }
}

func save(t testing.TB, l *Ledger, r attach.Record) {
	t.Helper()
	if err := l.Save(r, true); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, l *Ledger, id string) attach.Record {
	t.Helper()
	r, err := l.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// same compares whole records, configurations byte for byte.
func same(t testing.TB, want, got any) {
	t.Helper()
	text := cmp.Transformer("text", func(c cniconf.Config) string { return string(c.Bytes()) })
	if diff := cmp.Diff(want, got, text, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// tmpfs mounts a small file system.
func tmpfs(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("these tests need root, to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// files lists all files below a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
