package netns

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
)

func TestT16NotANamespace(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	file, fifo := filepath.Join(dir, "ns"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	const not = " is not a network namespace (a file on tmpfs, where a namespace should be mounted): no such network namespace"
	for path, text := range map[string]string{
		"":                  "no such network namespace: no path is given",
		dir + "/gone":       "no such network namespace: open " + dir + "/gone: no such file or directory",
		file + "/x":         "no such network namespace: open " + file + "/x: not a directory",
		file:                file + not,
		fifo:                fifo + not,
		dir:                 dir + not,
		"/proc/self/stat":   strings.ReplaceAll("/proc/self/stat"+not, "tmpfs", "proc"),
		"/proc/self/ns/pid": "/proc/self/ns/pid is not a network namespace (a namespace of another kind): no such network namespace",
	} {
		links := New("")
		_, interfaces := links.Interfaces(t.Context(), path)
		_, facts := links.Facts(t.Context(), path, "eth0")
		_, apply := links.Apply(t.Context(), path, attach.RouteChange{})
		do := Do(path, func() error { return errors.New("must not run") })
		for _, err := range []error{interfaces, facts, apply, do} {
			if !errors.Is(err, attach.ErrNoNetNS) || err.Error() != text {
				t.Errorf("%q gives\n     %v\nwant %s", path, err, text)
			}
		}
	}
}

func TestI2_ContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller left")
	cancel(cause)
	if _, err := New("").Interfaces(ctx, "/proc/self/ns/net"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestI2_Interfaces(t *testing.T) {
	got, err := New("").Interfaces(t.Context(), newPod(t).path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo", "peth0", "eth0", "pnet1", "net1", "pbare", "bare"}, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

func TestR18Facts(t *testing.T) {
	p := newPod(t)
	p.address("net1", "10.1.0.9/24")
	p.routes(spec{gw: "fd01::1", dev: "net1"}, spec{hops: []spec{{gw: "10.0.0.1", dev: "eth0"}, {gw: "10.1.0.1", dev: "net1"}}}, spec{gw: "10.1.0.1", dev: "net1", metric: 4})
	p.in(func() error {
		table := &netlink.Route{LinkIndex: index("net1"), Dst: everything(netlink.FAMILY_V4), Table: 100, Scope: netlink.SCOPE_LINK}
		link := &netlink.Route{LinkIndex: index("net1"), Scope: netlink.SCOPE_LINK}
		var err error
		link.Dst, err = netlink.ParseIPNet("192.168.7.0/24")
		return errors.Join(err, netlink.RouteAdd(table), netlink.RouteAdd(link))
	})
	got, err := New("").Facts(t.Context(), p.path, "net1")
	p.must(err)
	gw4 := attach.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: addr("10.1.0.1")}
	want := attach.Facts{
		MAC: "02:00:00:00:00:01", MTU: 1401, Up: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("10.1.0.9/24"), netip.MustParsePrefix("fd01::2/64")},
		Routes: []attach.Route{
			gw4, gw4, {Dst: netip.MustParsePrefix("192.168.7.0/24")}, {Dst: netip.MustParsePrefix("::/0"), GW: addr("fd01::1")},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}

	got, err = New("").Facts(t.Context(), p.path, "lo")
	if diff := cmp.Diff(attach.Facts{MTU: 65536}, got); diff != "" || err != nil {
		t.Errorf("facts of lo, error %v (-want +got):\n%s", err, diff)
	}
	_, err = New("").Facts(t.Context(), p.path, "net7")
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, attach.ErrNoNetNS) || err.Error() != "no interface net7 in "+p.path+": file does not exist" {
		t.Errorf("got %v", err)
	}
}

func TestI2_CreateDoDelete(t *testing.T) {
	here := func() string { s, _ := os.Readlink("/proc/thread-self/ns/net"); return s }
	home, dir := here(), filepath.Join(t.TempDir(), "netns")
	path, err := Create(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Delete(path) })
	if _, err := Create(dir, "a"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a name that is taken gives %v", err)
	}
	var inside string
	failed := errors.New("failed inside")
	if err := Do(path, func() error { inside = here(); return failed }); !errors.Is(err, failed) {
		t.Errorf("Do returns %v", err)
	}
	if inside == home || inside == "" {
		t.Errorf("Do ran in %q, the test runs in %q", inside, home)
	}
	for range 20 {
		done := make(chan string)
		go func() { done <- here() }()
		if got := <-done; got != home {
			t.Fatalf("a thread stayed in %s", got)
		}
	}
	for range 2 {
		if err := Delete(path); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left after Delete: %v, error %v", left, err)
	}
}
