package confgen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The lines of a mount table, reduced to what varies: device, root, mount point.
func line(device, root, point string) string {
	return "700 600 " + device + " " + root + " " + point + " rw,relatime shared:1 - ext4 /dev/x rw\n"
}

func TestR13HostPathFromMounts(t *testing.T) {
	const dir = "/host/etc/cni/net.d"
	image := line("0:70", "/", "/")
	kubeletsHosts := line("8:1", "/var/lib/kubelet/pods/u1/etc-hosts", "/etc/hosts")
	type outcome struct {
		Paths  []string
		Proven bool
	}
	tests := map[string]struct {
		mounts string
		dir    string
		chroot string
		want   outcome
	}{
		"on the host":                  {mounts: line("8:1", "/", "/") + line("0:30", "/", "/run"), want: outcome{[]string{dir}, true}},
		"kubelet's file proves":        {mounts: image + kubeletsHosts + line("8:1", "/etc/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d"}, true}},
		"termination log proves":       {mounts: image + line("8:1", "/var/lib/kubelet/pods/u1/containers/c/1", "/dev/termination-log") + line("8:1", "/etc/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d"}, true}},
		"k3s, a folder above":          {mounts: image + kubeletsHosts + line("8:1", "/var/lib/rancher", "/mnt/k3s"), dir: "/mnt/k3s/agent/etc/cni/net.d", want: outcome{[]string{"/var/lib/rancher/agent/etc/cni/net.d"}, true}},
		"/var is a partition":          {mounts: image + line("8:2", "/lib/kubelet/pods/u1/etc-hosts", "/etc/hosts") + line("8:1", "/etc/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d", "/etc/cni/net.d"}, false}},
		"kubelet on the same odd disk": {mounts: image + line("8:1", "/@/var/lib/kubelet/pods/u1/etc-hosts", "/etc/hosts") + line("8:1", "/@/etc/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d", "/@/etc/cni/net.d"}, false}},
		"/etc is a tmpfs":              {mounts: image + kubeletsHosts + line("0:50", "/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d", "/cni/net.d"}, false}},
		"/etc is a tmpfs, host root": {
			mounts: image + kubeletsHosts + line("8:1", "/", "/hostroot") + line("0:50", "/cni/net.d", "/hostroot/mnt/view") + line("0:50", "/", "/hostroot/etc") + line("0:50", "/cni/net.d", "/conf"),
			dir:    "/conf", chroot: "/hostroot/",
			want: outcome{[]string{"/etc/cni/net.d", "/mnt/view", "/cni/net.d"}, false},
		},
		"not mounted at all":     {mounts: image + kubeletsHosts, want: outcome{nil, false}},
		"a later mount covers":   {mounts: image + kubeletsHosts + line("8:9", "/other", dir) + line("8:1", "/etc/cni/net.d", dir), want: outcome{[]string{"/etc/cni/net.d"}, true}},
		"a space in the path":    {mounts: image + kubeletsHosts + line("8:1", `/my\040disk/net.d`, `/host/my\040disk`), dir: "/host/my disk/x", want: outcome{[]string{"/my disk/net.d/x"}, true}},
		"a sibling is not above": {mounts: image + kubeletsHosts + line("8:1", "/elsewhere", "/host/etc/cni/net") + line("8:1", "/etc", "/host/etc"), want: outcome{[]string{"/etc/cni/net.d"}, true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.dir == "" {
				tt.dir = dir
			}
			paths, proven := HostPaths(tt.mounts, tt.dir, tt.chroot)
			if diff := cmp.Diff(tt.want, outcome{paths, proven}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
