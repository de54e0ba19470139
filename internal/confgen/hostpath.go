package confgen

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo (proc(5)).
type mount struct {
	device string // major:minor
	root   string // the mounted folder or file, as the file system names it
	point  string // where it is mounted
}

// HostPaths tells what the folder dir of this mount namespace may be called on the
// host, best guess first, from the text of /proc/self/mountinfo. proven says that
// the first is certain:
//   - there is no container: nothing is mounted over /etc/hosts or
//     /dev/termination-log, and paths are the host's own; or
//   - the kubelet mounted a pod's file from the same file system, where its path
//     begins with /var/lib/kubelet/pods/, as on the host: this is then the host's
//     root file system, and dir's place in it is its path.
//
// Otherwise the caller can prove a guess by finding dir's inode below a mounted host
// root (chrootDir, "" for none), or pass it on as a guess.
func HostPaths(mountinfo, dir, chrootDir string) (paths []string, proven bool) {
	mounts := parseMounts(mountinfo)
	if !inContainer(mounts) {
		return []string{dir}, true
	}
	holder, ok := mountOf(mounts, dir)
	if !ok || holder.point == "/" { // in the container's own image: not on the host at all
		return nil, false
	}
	inside := filepath.Join(holder.root, strings.TrimPrefix(dir, holder.point))
	if kubeletKnows(mounts, holder.device) {
		return []string{inside}, true
	}
	if chrootDir != "" {
		paths = append(paths, belowHostRoot(mounts, holder.device, inside, chrootDir)...)
	}
	if bare, ok := strings.CutPrefix(dir, "/host/"); ok { // where manifests mount host folders by custom
		paths = append(paths, "/"+bare)
	}
	return append(paths, inside), false
}

func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			mounts = append(mounts, mount{f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return mounts
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// podFiles are what the kubelet mounts into every container from its own folder.
var podFiles = []string{"/etc/hosts", "/dev/termination-log"}

func inContainer(mounts []mount) bool {
	return slices.ContainsFunc(mounts, func(m mount) bool { return slices.Contains(podFiles, m.point) })
}

func kubeletKnows(mounts []mount, device string) bool {
	return slices.ContainsFunc(mounts, func(m mount) bool {
		return slices.Contains(podFiles, m.point) && m.device == device && strings.HasPrefix(m.root, "/var/lib/kubelet/pods/")
	})
}

// mountOf finds the mount that path lies in: the deepest, and of those at one point
// the last, which covers the others.
func mountOf(mounts []mount, path string) (mount, bool) {
	var found mount
	for _, m := range mounts {
		if within(path, m.point) && len(m.point) >= len(found.point) {
			found = m
		}
	}
	return found, found.point != ""
}

// belowHostRoot finds where the mounted host root shows the file system's folder
// inside, which needs not be in the host's root file system. The host's largest
// view of the file system comes first.
func belowHostRoot(mounts []mount, device, inside, chrootDir string) []string {
	var views []mount
	for _, m := range mounts {
		if m.device == device && within(m.point, chrootDir) && within(inside, m.root) {
			views = append(views, m)
		}
	}
	slices.SortStableFunc(views, func(a, b mount) int { return cmp.Compare(len(a.root), len(b.root)) })
	var paths []string
	for _, m := range views {
		onHost := strings.TrimPrefix(m.point, filepath.Clean(chrootDir))
		paths = append(paths, filepath.Join("/", onHost, strings.TrimPrefix(inside, m.root)))
	}
	return paths
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
