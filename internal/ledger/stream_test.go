package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/attach"
)

// told is a record in a line.
func told(rec attach.Record, err error) string {
	line := fmt.Sprintf("%s %s %q", Name(rec), rec.Plan.Pod, rec.Origin)
	for _, a := range rec.Plan.Attachments {
		line += " " + a.Config.Name() + "/" + a.Interface
	}
	if rec.Created.IsZero() {
		line += " no time"
	}
	if err != nil {
		line += " " + fmt.Sprint(errors.Is(err, attach.ErrDamaged))
	}
	return line
}

// TestI5_Streams: each file once, in no order, with what it tells itself.
func TestI5_Streams(t *testing.T) {
	l := v4Node(t)
	save(t, l, record(t))
	write(t, filepath.Join(l.dir, "damaged"), []byte("[{"))
	write(t, filepath.Join(l.dir, ".tmp-1"), []byte("[{"))
	write(t, filepath.Join(l.dir, "results/primary-other-eth0"), content(t, filepath.Join(l.dir, "results/primary-"+v4ID+"-eth0"))) // not of libcni
	write(t, filepath.Join(l.dir, "results/damaged-x-eth0"), []byte("{"))
	write(t, filepath.Join(l.dir, "results/m-c-eth0"), []byte(`{"kind":"cniCacheV1","containerId":"c","config":"eyJuYW1lIjoibSIsInR5cGUiOiJtdWx0dXMtc2hpbSJ9","ifName":"eth0","networkName":"m"}`)) // the runtime's own
	var each, results []string
	for rec, err := range l.Each() {
		each = append(each, told(rec, err))
		if again, againErr := l.Open(Name(rec)); told(again, againErr) != told(rec, err) {
			t.Errorf("opened alone: %s", told(again, againErr))
		}
	}
	for rec, err := range l.Results() {
		results = append(results, told(rec, err))
		if again, againErr := l.Open(Name(rec)); told(again, againErr) != told(rec, err) {
			t.Errorf("opened alone: %s", told(again, againErr))
		}
	}
	slices.Sort(each)
	slices.Sort(results)
	same(t, []string{
		id + ` ns/pod "" primary/eth0 net-a/net1 net-a/net7`,
		`damaged / "" true`,
		v4ID + ` / "v4" primary/ net-a/lan0 net-b/net2`,
	}, each)
	same(t, []string{
		`results/net-a-` + v4ID + `-lan0 ns-a/pod-a-0 "libcni" net-a/lan0`,
		`results/net-b-` + v4ID + `-net2 ns-a/pod-a-0 "libcni" net-b/net2`,
		`results/primary-` + v4ID + `-eth0 ns-a/pod-a-0 "libcni" primary/eth0`,
	}, results)
	for _, name := range []string{"absent", "../x", "results/../x", "results/absent", "results", ""} {
		if _, err := l.Open(name); !errors.Is(err, attach.ErrNoRecord) {
			t.Errorf("opening %q gives %v", name, err)
		}
	}
}

// TestI5_ManyFiles: what 300 000 stale files cost, in calls of the kernel and in memory.
// No test of time: how fast a disk is says nothing.
func TestI5_ManyFiles(t *testing.T) {
	const many, links = 300_000, 50_000 // of one file
	l := v4Node(t)
	memory := New(tmpfs(t, "nr_inodes=0"), "boot-1")
	if err := os.CopyFS(memory.dir, os.DirFS(l.dir)); err != nil {
		t.Fatal(err)
	}
	l = memory
	for dir, text := range map[string]string{
		"":         `[{"Name":"a","Bytes":"eyJuYW1lIjoiYSIsInR5cGUiOiJ4In0="}]`,
		resultsDir: `{"kind":"cniCacheV1","containerId":"c","config":"eyJuYW1lIjoiYSIsInR5cGUiOiJ4In0=","ifName":"eth0","networkName":"a"}`,
	} {
		for i := range many {
			file := fmt.Sprintf("%d", i/links)
			if i%links == 0 {
				write(t, filepath.Join(l.dir, dir, file), []byte(text))
				continue
			}
			if err := os.Link(filepath.Join(l.dir, dir, file), filepath.Join(l.dir, dir, fmt.Sprintf("stale-%d", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, walk := range map[string]func() int{
		"files": func() (n int) {
			for range l.Each() {
				n++
			}
			return n
		},
		"results": func() (n int) {
			for range l.Results() { // the links have other names than libcni gives
				n++
			}
			return n + many - 3
		},
		"one sandbox's results": func() int {
			if r := load(t, l, v4ID); len(r.Plan.Attachments) != 3 {
				t.Errorf("%d attachments", len(r.Plan.Attachments))
			}
			return many
		},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		calls := reads(t)
		if n := walk(); n < many {
			t.Errorf("%s: %d of them", name, n)
		}
		calls = reads(t) - calls
		runtime.GC()
		runtime.ReadMemStats(&after)
		t.Logf("%s: %.1f calls of read and %d bytes a file, %d KiB more on the heap at most at once", name, float64(calls)/many, (after.TotalAlloc-before.TotalAlloc)/many, (int64(after.HeapSys)-int64(before.HeapSys))>>10)
		if calls > 4*many {
			t.Errorf("%s: %d calls of read", name, calls)
		}
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
			t.Errorf("%s: the heap has grown by %d bytes", name, grown)
		}
	}
}

// reads is how often this process has called read(2).
func reads(t *testing.T) (n int) {
	t.Helper()
	for line := range strings.Lines(string(content(t, "/proc/self/io"))) {
		_, _ = fmt.Sscanf(line, "syscr: %d", &n)
	}
	return n
}
