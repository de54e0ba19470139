// Package check is what the rigs of the tests ask of values and errors, each for its
// own world. A rig embeds T. Tests alone use it.
package check

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
)

// T is a test with checks.
type T struct{ *testing.T }

// Must ends the test where err is not nil.
func (t T) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Same compares whole values.
func (t T) Same(what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Fails demands an error with a CNI code whose text holds some words.
func (t T) Fails(err error, code uint, words string) {
	t.Helper()
	if cni := api.CNIError(err); cni == nil || cni.Code != code || !strings.Contains(cni.Msg, words) {
		t.Errorf("got %v (%+v), want code %d and %q", err, cni, code, words)
	}
}

// Eventually polls until ok, for 10 s at most.
func (t T) Eventually(what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// Opens tells what of a folder is opened from now on: its files by name, itself as "".
func Opens(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		var names []string
		buf := make([]byte, 1<<20)
		for {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return names
			}
			if err != nil {
				t.Fatal(err)
			}
			for rest := buf[:n]; len(rest) > 0; {
				event := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0]))
				name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:][:event.Len]), "\x00")
				names = append(names, name)
				rest = rest[unix.SizeofInotifyEvent+int(event.Len):]
			}
		}
	}
}
