package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one call of mount(2), whose target is made first if it is missing.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// mounts make a machine's file system at folder/root/root: an overlay over this
// machine's own root, so that every installed program is there, with the changes in
// memory (they cannot be below what the overlay is over). /dev is this machine's;
// proc, sys, run and tmp are the machine's own.
func (s spec) mounts(folder string) []mount {
	memory := filepath.Join(folder, "root")
	root := memory + "/root"
	all := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"tmpfs", memory, "tmpfs", 0, "mode=755"},
		overlay(root, "/", memory),
		{"/dev", root + "/dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"proc", root + "/proc", "proc", 0, ""},
		{"sysfs", root + "/sys", "sysfs", 0, ""},
		{"tmpfs", root + "/run", "tmpfs", 0, "mode=755"},
		{"tmpfs", root + "/tmp", "tmpfs", 0, "mode=1777"},
		{"tmpfs", root + "/sys/fs/cgroup", "tmpfs", 0, "mode=755"},
	}
	for _, g := range s.Cgroups {
		all = append(all, mount{"cgroup", root + "/sys/fs/cgroup/" + g.name(), "cgroup", 0, g.Options})
	}
	for _, d := range s.Disks {
		if d.Lower != "" {
			all = append(all, overlay(root+d.Path, d.Lower, d.Folder))
		} else {
			all = append(all, mount{d.Folder, root + d.Path, "", unix.MS_BIND, ""})
		}
	}
	// The kernel lets a user namespace mount its own proc only where it sees one that
	// nothing is mounted on.
	return append(all, mount{"proc", root + "/run/lab/proc", "proc", 0, ""})
}

// overlay has its changes below folder.
func overlay(target, lower, folder string) mount {
	return mount{"overlay", target, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, folder, folder)}
}

func (m mount) do() error {
	dirs := []string{m.target}
	for option := range strings.SplitSeq(m.data, ",") {
		if _, dir, ok := strings.Cut(option, "dir="); ok {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s: %w", m.target, err)
	}
	return nil
}

// tunables are the settings of the kernel that a kubelet changes and that no namespace
// has of its own. A machine gets files in their place, so that this one's stay.
var tunables = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom",
}

// enterRoot makes the machine's file system that of this process.
func (s spec) enterRoot(folder string) error {
	for _, m := range s.mounts(folder) {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := os.Chdir(filepath.Join(folder, "root", "root")); err != nil {
		return err
	}
	// The old root is then on top of the new one, at the same place.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, name := range tunables {
		if err := replaceTunable("/proc/sys/"+name, "/run/lab/sys/"+name); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	// As on any machine with systemd: pods whose mounts propagate rely on it.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// replaceTunable puts a file of the same content over a setting.
func replaceTunable(setting, file string) error {
	value, err := os.ReadFile(setting)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, value, 0o644); err != nil {
		return err
	}
	return unix.Mount(file, setting, "", unix.MS_BIND, "")
}
