package node_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
)

func TestC1_8SocketIsRoots(t *testing.T) {
	n := newNode(t, setup{})
	info, err := os.Stat(n.path("run/multus.sock"))
	n.Must(err)
	n.Same("the socket's mode", os.FileMode(0o600), info.Mode().Perm())
	// Even where somebody opens the way, the daemon asks who comes.
	for _, path := range []string{filepath.Dir(n.dir), n.dir, n.path("run"), n.path("run/multus.sock")} {
		n.Must(os.Chmod(path, 0o777))
	}
	for user, want := range map[int]string{0: "HTTP/1.1 200 OK", 65534: ""} {
		answer, err := askAs(user, n.path("run/multus.sock"))
		if status, _, _ := strings.Cut(answer, "\r"); status != want {
			t.Errorf("user %d got %q (%v), want %q", user, answer, err, want)
		}
	}
}

// askAs asks for /healthz as another user, on a thread that ends with it: the user
// belongs to the thread, and the socket's peer is who connected.
func askAs(user int, socket string) (answer string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			err = errno
			return
		}
		answer, err = ask(socket)
	}()
	<-done
	return answer, err
}

func ask(socket string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", err
	}
	if err := unix.Send(fd, []byte("GET /healthz HTTP/1.1\r\nHost: dummy\r\n\r\n"), unix.MSG_NOSIGNAL); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := unix.Read(fd, answer)
	return string(answer[:max(n, 0)]), err
}

// What wipes the socket's folder, like a daemon of Multus v4 at its start, does not
// cut the node off.
func TestR4SocketComesBack(t *testing.T) {
	n := newNode(t, setup{})
	n.Must(os.RemoveAll(n.path("run")))
	n.eventually(func() error { return n.get(api.PathReadyz) })
	n.Must(n.stopDaemon(syscall.SIGTERM))
	if _, err := os.Lstat(n.path("run/multus.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
