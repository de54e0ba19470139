package trial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// CloneFlags are the namespaces that a process must be started with to Enter. The
// PID namespace is what makes an end by force a clean one: with its first process
// the kernel ends all others, and with them go the links and the mounts.
const CloneFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID

// Places that a node's programs write, which a trial covers with memory.
const (
	runDir    = "/run"
	cniState  = "/var/lib/cni"
	ledgerDir = cniState + "/multus"
	netnsDir  = runDir + "/netns"
	workDir   = runDir + "/multusctl"
)

// Enter makes this process, which was started with CloneFlags, the first of a node:
// what plugins write lands in memory of its own. pid is the process as the machine
// knows it.
func Enter(f *Folder) (pid int, err error) {
	self, err := os.Readlink("/proc/self") // of the machine's /proc, as long as that is mounted
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(self); err != nil {
		return 0, err
	}
	if os.Getpid() != 1 {
		return 0, errors.New("not the first process of a PID namespace; multusctl try starts it")
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return 0, err
	}
	var covered []string
	for _, dir := range append([]string{runDir, "/var/run", cniState}, f.strings("ipam", "dataDir")...) {
		if covered, err = cover(dir, covered); err != nil {
			return 0, err
		}
	}
	return pid, os.MkdirAll(workDir, 0o755)
}

// cover puts an empty folder in memory over dir. Where dir does not exist its place is
// made in a layer over the folder that would hold it, and not on the machine.
func cover(dir string, covered []string) ([]string, error) {
	holder, rest, err := existing(dir)
	if err != nil {
		return nil, err
	}
	for _, c := range covered {
		if holder == c || strings.HasPrefix(holder, c+"/") {
			return covered, nil
		}
	}
	dir = filepath.Join(holder, rest)
	if rest != "" {
		if holder == "/" {
			return nil, fmt.Errorf("%s: a trial cannot make this folder without touching the machine; make it, or let the configuration name another", dir)
		}
		layer := filepath.Join(workDir, "layers", strconv.Itoa(len(covered)))
		upper, scratch := filepath.Join(layer, "upper"), filepath.Join(layer, "scratch")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(scratch, 0o755)); err != nil {
			return nil, err
		}
		if err := mount("overlay", holder, "overlay", 0, "lowerdir="+holder+",upperdir="+upper+",workdir="+scratch); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return append(covered, dir), mount("tmpfs", dir, "tmpfs", 0, "mode=0755")
}

// existing splits a path into the part that exists, with links followed, and the rest.
func existing(path string) (holder, rest string, err error) {
	for holder = filepath.Clean(path); ; holder = filepath.Dir(holder) {
		real, err := filepath.EvalSymlinks(holder)
		if err == nil {
			return real, rest, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
		rest = filepath.Join(filepath.Base(holder), rest)
	}
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("making the trial's own view of %s: %w", target, err)
	}
	return nil
}
