package lab

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const separateMounts = `22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

// TestI3_CgroupsOfThisProcessAreFound: in each hierarchy of version 1, wherever and
// together with whatever it is mounted, and however deep we are in it.
func TestI3_CgroupsOfThisProcessAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		membership, mountinfo string
		want                  []cgroup
	}{
		"one by one": {
			"9:name=systemd:/\n8:pids:/\n4:memory:/service/a\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n", separateMounts,
			[]cgroup{
				{"/sys/fs/cgroup/systemd", "none,name=systemd"},
				{"/sys/fs/cgroup/pids", "pids"},
				{"/sys/fs/cgroup/memory/service/a", "memory"},
				{"/sys/fs/cgroup/cpuset", "cpuset"},
				{"/sys/fs/cgroup/cpuacct", "cpuacct"},
				{"/sys/fs/cgroup/cpu", "cpu"},
			},
		},
		"together, and in a container": {
			"3:perf_event:/box\n2:cpu,cpuacct:/box/b\n1:memory,pids,cpuset:/box\n",
			"50 40 0:50 /box /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu\n" +
				"51 40 0:51 /box /groups rw - cgroup none rw,cpuset,memory,pids,clone_children\n",
			[]cgroup{
				{"/sys/fs/cgroup/cpu,cpuacct/b", "cpu,cpuacct"},
				{"/groups", "memory,pids,cpuset"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, must(ownCgroups(c.membership, c.mountinfo))); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestI3_CgroupVersion2IsRefused: with a line that says what would be right.
func TestI3_CgroupVersion2IsRefused(t *testing.T) {
	_, err := ownCgroups("1:name=systemd:/\n0::/user.slice\n", separateMounts)
	if !errors.Is(err, errNoVersion1) {
		t.Errorf("error %v, want %v", err, errNoVersion1)
	}
}

// TestI3_CgroupNames: of the folders in which a machine's hierarchies are mounted.
func TestI3_CgroupNames(t *testing.T) {
	got := []string{cgroup{Options: "none,name=systemd"}.name(), cgroup{Options: "cpu,cpuacct"}.name()}
	if d := cmp.Diff([]string{"systemd", "cpu,cpuacct"}, got); d != "" {
		t.Error(d)
	}
}

// TestI3_CgroupsAreRecordedBeforeTheyAreMade: each once, also by machines that are
// started side by side.
func TestI3_CgroupsAreRecordedBeforeTheyAreMade(t *testing.T) {
	c := must(Open(Config{State: t.TempDir(), Cache: t.TempDir()}))
	for _, groups := range [][]cgroup{nil, {{Dir: "/g/a b"}, {Dir: "/g/c"}}, {{Dir: "/g/c"}, {Dir: "/g/d"}}} {
		if err := c.record(groups); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"/g/a b", "/g/c", "/g/d"}, must(c.recorded())); d != "" {
		t.Error(d)
	}
}
