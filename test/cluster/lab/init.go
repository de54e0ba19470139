package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names by which a program that imports this package runs as the first process of a
// machine: first to join its cgroups, then, in a cgroup namespace that has these as
// its roots, for good.
const (
	joinName = "lab-join"
	initName = "lab-init"
)

// initSocket is where a machine's first process is told what to do. From outside it
// is reached through that process's root.
const initSocket = "/run/lab/init.sock"

// listenerFD is the listener that the first process of the control plane inherits.
const listenerFD = 3

// IsInit says whether this process is to be the first of a machine. Every program
// that starts machines, tests included, must begin with
//
//	if lab.IsInit() {
//		os.Exit(lab.Init(ctx))
//	}
func IsInit() bool { return len(os.Args) == 3 && (os.Args[0] == joinName || os.Args[0] == initName) }

// Init is the first process of a machine, and returns only where it cannot be that.
func Init(ctx context.Context) int {
	folder := filepath.Join(os.Args[1], os.Args[2])
	s, err := readSpec(folder)
	switch {
	case err != nil:
	case os.Args[0] == joinName:
		err = s.join()
	default:
		err = s.boot(ctx, folder)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// join replaces this process by one in the machine's cgroups. The new namespace is
// the calling thread's alone, and the whole process's after exec.
func (s spec) join() error {
	runtime.LockOSThread()
	for _, g := range s.Cgroups {
		if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("joining the cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("a cgroup namespace: %w", err)
	}
	return syscall.Exec("/proc/self/exe", append([]string{initName}, os.Args[1:]...), os.Environ())
}

func (s spec) boot(ctx context.Context, folder string) error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("the host name: %w", err)
	}
	if err := s.enterRoot(folder); err != nil {
		return err
	}
	if err := ownNetwork(); err != nil {
		return err
	}
	if s.Forward != "" {
		listener, err := net.FileListener(os.NewFile(listenerFD, "listener"))
		if err != nil {
			return fmt.Errorf("the inherited listener: %w", err)
		}
		go forward(ctx, listener, s.Forward)
	}
	listener, err := net.Listen("unix", initSocket)
	if err != nil {
		return err
	}
	// exec looks programs up in its own PATH, not in the one that it gives them.
	if err := os.Setenv("PATH", s.Path); err != nil {
		return err
	}
	return newSupervisor(s, "/var/log").serve(listener)
}

// ownNetwork sets what can only be set from inside.
func ownNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	for _, setting := range []string{
		"ipv4/ip_forward", "ipv6/conf/all/forwarding",
		"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables", // Services between pods of one bridge need it
	} {
		err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without it
			return err
		}
	}
	return nil
}

// forward hands the connections of a listener of the whole machine to an address of
// this one: sockets stay in the network namespace in which they were made.
func forward(ctx context.Context, from net.Listener, to string) {
	for {
		outer, err := from.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "forwarding:", err)
			return
		}
		go func() {
			defer outer.Close()
			inner, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				return // the client sees that nobody is there
			}
			defer inner.Close()
			join(outer.(*net.TCPConn), inner.(*net.TCPConn))
		}()
	}
}

// join copies both ways until both have ended.
func join(a, b *net.TCPConn) {
	var both sync.WaitGroup
	for _, pair := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // a broken connection ends the other
			_ = pair[0].CloseWrite()
		})
	}
	both.Wait()
}

// environment of the programs of a machine, and of commands run there.
func (s spec) environment() []string {
	return []string{"PATH=" + s.Path, "HOME=/root", "LANG=C.UTF-8"}
}
