package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideEnv is set in the process that has namespaces of its own.
const insideEnv = "MULTUS_BENCH_INSIDE"

// options are the command line.
type options struct {
	bin   string
	pairs int
	only  string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the binaries, with the reference plugins in its folder cni")
	flag.IntVar(&o.pairs, "pairs", 30, "measurements of each ADD and DEL")
	flag.StringVar(&o.only, "run", "", "only the parts that match: size, start, calls, cpu, ratio, parallel, memory, stale")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	run := o.inside
	if os.Getenv(insideEnv) == "" {
		run = again
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// again runs this program in namespaces of its own, which end with it.
func again(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: sudo make bench")
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up
	return cmd.Run()
}

// inside sets the node up and measures everything.
func (o options) inside(ctx context.Context) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("a mount namespace of one's own: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "multus-bench-")
	if err != nil {
		return err
	}
	n, err := newNode(dir, bin)
	if err == nil {
		err = errors.Join(o.measure(ctx, n), n.close())
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// measure prints also what was measured before an error.
func (o options) measure(ctx context.Context, n *node) error {
	wanted, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("flag -run: %w", err)
	}
	t := newTable(os.Stderr)
	for _, part := range []struct {
		name    string
		measure func(context.Context, *table, *node) error
	}{
		{"size", sizes},
		{"start", startToReady},
		{"calls", apiCalls},
		{"cpu", processorTime},
		{"ratio", ratios(o.pairs)},
		{"parallel", parallel},
		{"memory", memory},
		{"stale", staleFiles},
	} {
		if wanted.MatchString(part.name) {
			if err = part.measure(ctx, t, n); err != nil {
				break
			}
		}
	}
	return errors.Join(err, t.print(os.Stdout))
}
