package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup is a memory cgroup for the daemon, below the one of this process.
type cgroup struct {
	dir   string
	usage string // file with the usage in bytes
	key   string // of memory.stat: what the kubelet takes off the usage
}

// newCgroup is nil where none can be made: the group is read-only, or in version 2
// the controller is not handed down.
func newCgroup() *cgroup {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := &cgroup{usage: "memory.usage_in_bytes", key: "total_inactive_file"}
		root := "/sys/fs/cgroup/memory"
		switch {
		case len(part) != 3 || part[0] != "0" && part[1] != "memory":
			continue
		case part[0] == "0":
			g.usage, g.key, root = "memory.current", "inactive_file", "/sys/fs/cgroup"
		}
		g.dir = filepath.Join(root, part[2], fmt.Sprintf("multus-bench-%d", os.Getpid()))
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if _, err := g.workingSet(); err == nil {
			return g
		}
		g.remove()
	}
	return nil
}

func (g *cgroup) procs() string { return filepath.Join(g.dir, "cgroup.procs") }

func (g *cgroup) remove() { _ = os.Remove(g.dir) } // it is empty; the next run has another

// workingSet is what the kubelet calls so: the usage without inactive file pages.
func (g *cgroup) workingSet() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	if err != nil {
		return 0, err
	}
	usage, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, err
	}
	inactive, err := field(filepath.Join(g.dir, "memory.stat"), g.key)
	return max(0, usage-inactive), err
}

// field reads a number from a file with a name and a number on each line.
func field(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && strings.TrimSuffix(words[0], ":") == name {
			return strconv.ParseInt(words[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// coldCopy copies a file and drops the copy from the page cache.
func coldCopy(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	_ = os.Remove(to) // one that still runs could not be written to
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), unix.Fadvise(int(out.Fd()), 0, 0, unix.FADV_DONTNEED), out.Close())
}
