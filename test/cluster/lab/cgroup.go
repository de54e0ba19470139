package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroup is a machine's own group in one hierarchy of version 1.
type cgroup struct {
	Dir     string // of the group, on the whole machine
	Options string // with which the hierarchy is mounted
}

// name of the hierarchy's folder below /sys/fs/cgroup.
func (g cgroup) name() string { return strings.TrimPrefix(g.Options, "none,name=") }

var errNoVersion1 = errors.New("the controllers memory, cpu, cpuset and pids are needed on cgroup version 1 " +
	"(kernel command line: systemd.unified_cgroup_hierarchy=0)")

// ownCgroups are the groups that a process is in, by its /proc/PID/cgroup and
// /proc/PID/mountinfo.
func ownCgroups(membership, mountinfo string) ([]cgroup, error) {
	var groups []cgroup
	var found []string
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] == "" { // the latter is version 2
			continue
		}
		controllers := strings.Split(parts[1], ",")
		point, root, ok := cgroupMount(mountinfo, controllers)
		if !ok {
			continue
		}
		below, err := filepath.Rel(root, parts[2])
		if err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", parts[1], err)
		}
		options := parts[1]
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		groups = append(groups, cgroup{Dir: filepath.Join(point, below), Options: options})
		found = append(found, controllers...)
	}
	for _, needed := range []string{"memory", "cpu", "cpuset", "pids"} {
		if !slices.Contains(found, needed) {
			return nil, errNoVersion1
		}
	}
	return groups, nil
}

// cgroupMount finds where the hierarchy with the controllers is mounted, and which
// part of it.
func cgroupMount(mountinfo string, controllers []string) (point, root string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		mount, file, found := strings.Cut(strings.TrimSpace(line), " - ")
		fields, super := strings.Fields(mount), strings.Fields(file)
		if !found || len(fields) < 5 || len(super) < 3 || super[0] != "cgroup" {
			continue
		}
		options := strings.Split(super[2], ",")
		if !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(options, c) }) {
			return fields[4], fields[3], true
		}
	}
	return "", "", false
}

// machineCgroups are those of the machine, below the ones that this process is in:
// what limits or watches this process also does so to the machines.
func (c *Cluster) machineCgroups(name string) ([]cgroup, error) {
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	groups, err := ownCgroups(string(membership), string(mountinfo))
	for i := range groups {
		groups[i].Dir = filepath.Join(groups[i].Dir, c.id+"-"+name)
	}
	return groups, err
}

// create makes the group. A new one of cpuset cannot be entered before it has both.
func (g cgroup) create() error {
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if !slices.Contains(strings.Split(g.Options, ","), "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(g.Dir), file))
		if err == nil {
			err = os.WriteFile(filepath.Join(g.Dir, file), value, 0o644)
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// remove removes the group and those below it, which the kernel frees a little after
// their last process has ended.
func (g cgroup) remove(ctx context.Context) error {
	err := poll(ctx, 10*time.Second, func(context.Context) error {
		var dirs []string
		err := filepath.WalkDir(g.Dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) && len(dirs) == 0 {
			return nil
		}
		for _, dir := range slices.Backward(dirs) {
			err = errors.Join(err, os.Remove(dir))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", g.Dir, err)
	}
	return nil
}

// record notes cgroups before they are made, so that they are found again. It only
// adds: machines may be started side by side.
func (c *Cluster) record(groups []cgroup) error {
	known, err := c.recorded()
	if err != nil {
		return err
	}
	var more strings.Builder
	for _, g := range groups {
		if !slices.Contains(known, g.Dir) {
			more.WriteString(g.Dir + "\n")
		}
	}
	f, err := os.OpenFile(c.file("cgroups"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(more.String())
	return err
}

func (c *Cluster) recorded() ([]string, error) {
	text, err := os.ReadFile(c.file("cgroups"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), err
}

// removeCgroups removes those of one machine, or with "" all.
func (c *Cluster) removeCgroups(ctx context.Context, machine string) error {
	dirs, err := c.recorded()
	for _, dir := range dirs {
		if machine == "" || filepath.Base(dir) == c.id+"-"+machine {
			err = errors.Join(err, cgroup{Dir: dir}.remove(ctx))
		}
	}
	return err
}
