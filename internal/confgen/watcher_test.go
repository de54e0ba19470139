package confgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// recorder is an Observer that writes down one line a call.
type recorder struct {
	mu    sync.Mutex
	lines []string
	dir   string        // cut from the lines
	wake  chan struct{} // one token when something was recorded
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, brief(strings.ReplaceAll(fmt.Sprintf(format, args...), r.dir, "")))
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// brief cuts what the JSON parser adds in its own words.
func brief(text string) string {
	before, _, found := strings.Cut(text, "is not valid JSON")
	if !found {
		return text
	}
	return before + "is not valid JSON"
}

func (r *recorder) Chosen(c Choice)                  { r.add("chosen %s: %s", c.Name, c.Why) }
func (r *recorder) Skipped(s Skipped)                { r.add("skipped %s: %s", s.Name, s.Reason) }
func (r *recorder) Written(path string)              { r.add("written %s", path) }
func (r *recorder) Removed(path string)              { r.add("removed %s", path) }
func (r *recorder) Waiting(reason string)            { r.add("%s", reason) }
func (r *recorder) Lost(what string, withdrawn bool) { r.add("lost %s, withdrawn %t", what, withdrawn) }

func (r *recorder) Foreign(change string, d time.Duration) {
	r.add("foreign, restore in %s: %s", d, change)
}
func (r *recorder) Shadowed(by string) { r.add("shadowed by %s", by) }
func (r *recorder) Failed(err error)   { r.add("failed: %v", err) }

// take returns what was recorded since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// rig is a Watcher over a temporary folder, with a clock of its own.
type rig struct {
	t   *testing.T
	w   *Watcher
	rec *recorder
	dir string
	now time.Time
}

func newRig(t *testing.T, adjust func(dir string, cfg *config.Config)) *rig {
	t.Helper()
	dir := t.TempDir()
	cfg := defaults()
	cfg.CNIVersion, cfg.CNIConfigDir, cfg.MultusAutoconfigDir = "1.0.0", dir, dir
	if adjust != nil {
		adjust(dir, cfg)
	}
	rec := &recorder{dir: dir, wake: make(chan struct{}, 1)}
	w, err := New(cfg, rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, w: w, rec: rec, dir: dir, now: time.Unix(1_800_000_000, 0)}
}

func pinned(name string) func(string, *config.Config) {
	return func(_ string, cfg *config.Config) { cfg.MultusMasterCNI = name }
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

// generated is the key of the file that tells the primary network, "" without a file.
func (r *rig) generated() string {
	r.t.Helper()
	raw, err := os.ReadFile(r.path(FileName))
	if os.IsNotExist(err) {
		return ""
	}
	var f struct{ ClusterNetwork string }
	if err := json.Unmarshal(raw, &f); err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimPrefix(f.ClusterNetwork, r.dir+"/")
}

// after lets time pass, checks, and compares all that shows.
func (r *rig) after(passed time.Duration, primary string, ready bool, lines ...string) {
	r.t.Helper()
	r.now = r.now.Add(passed)
	r.w.check(r.t.Context(), r.now)
	if diff := cmp.Diff(lines, r.rec.take()); diff != "" {
		r.t.Errorf("observed: %s", diff)
	}
	if got := r.generated(); got != primary {
		r.t.Errorf("the generated file has the primary network %q, want %q", got, primary)
	}
	if state := r.w.State(); state.Ready != ready {
		r.t.Errorf("ready is %t, want %t: %s", state.Ready, ready, state.Why)
	}
}

const (
	choseMain   = "chosen 50-main.conflist: named by multusMasterCNI"
	choseFirst  = ": the first valid configuration by name in "
	wroteOurs   = "written /00-multus.conf"
	waitsPinned = "waiting for 50-main.conflist, the multusMasterCNI: there is no such file"
	waitsAny    = "waiting for a primary network's configuration (.conf or .conflist) in "
)

func TestT5PinnedPrimary(t *testing.T) {
	r := newRig(t, pinned("50-main.conflist"))
	r.write("05-side.conflist", side20)
	r.after(0, "", false, waitsPinned)
	r.after(time.Minute, "", false)
	r.write("50-main.conflist", main10[:40])
	r.after(0, "", false, "skipped 50-main.conflist: is not valid JSON",
		"waiting for 50-main.conflist, the multusMasterCNI: it is not valid JSON")
	r.write("50-main.conflist", main10)
	r.after(0, "50-main.conflist", true, choseMain, wroteOurs)
	r.after(time.Second, "50-main.conflist", true)

	edited := strings.Replace(main10, `"portMappings"`, `"bandwidth"`, 1)
	r.write("50-main.conflist", edited)
	r.after(0, "50-main.conflist", true, wroteOurs)
	r.after(time.Second, "50-main.conflist", true)

	r.remove("50-main.conflist")
	r.after(0, "50-main.conflist", false, "the primary network's file /50-main.conflist is gone")
	r.after(lossGrace, "50-main.conflist", false, "lost /50-main.conflist, withdrawn false")
	r.after(time.Hour, "50-main.conflist", false)
	r.write("50-main.conflist", edited)
	r.after(0, "50-main.conflist", true)
}

func TestT5PinnedNameMustBeBare(t *testing.T) {
	for _, name := range []string{"../50-main.conflist", "/etc/cni/net.d/50-main.conflist", "sub/50-main.conflist", ".."} {
		cfg := defaults()
		cfg.MultusMasterCNI = name
		_, err := New(cfg, &recorder{}, nil)
		want := fmt.Sprintf("multusMasterCNI is %q: want the bare name of a file in multusAutoconfigDir", name)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestT6AutoMode(t *testing.T) {
	r := newRig(t, nil)
	r.write("00-multus.conf.cilium_bak", side20)
	r.write("01-e.conf", "")
	r.write("08-self.conflist", nesting)
	r.after(0, "", false, "skipped 01-e.conf: is empty", "skipped 08-self.conflist: holds Multus itself", waitsAny)
	r.write("20-b.conf", side20)
	r.after(0, "20-b.conf", true, "chosen 20-b.conf"+choseFirst, wroteOurs)
	r.write("01-e.conf", side20[:12]) // other content: told once more
	r.after(0, "20-b.conf", true, "skipped 01-e.conf: is not valid JSON")
	r.write("10-a.conflist", main10)
	r.after(0, "10-a.conflist", true, "chosen 10-a.conflist"+choseFirst, wroteOurs)
	r.write("10-a.conflist", main10[:50]) // being edited
	r.after(0, "10-a.conflist", false, "skipped 10-a.conflist: is not valid JSON",
		"the primary network's file /10-a.conflist is not valid JSON")
	r.write("10-a.conflist", main10)
	r.after(time.Hour, "10-a.conflist", true)
	r.remove("10-a.conflist") // and 20-b is no heir: a chosen network is not left for another
	r.after(0, "10-a.conflist", false, "the primary network's file /10-a.conflist is gone")
	r.after(lossGrace, "10-a.conflist", false, "lost /10-a.conflist, withdrawn false")
	r.write("09-lower.conf", side20)
	r.after(0, "09-lower.conf", true, "chosen 09-lower.conf"+choseFirst, wroteOurs)
}

func TestR6LostPrimaryWithdraws(t *testing.T) {
	r := newRig(t, nil)
	r.write("08-self.conflist", nesting)
	r.write("99-broken.conf", "{")
	r.write("10-a.conflist", main10)
	skips := "skipped 08-self.conflist: holds Multus itself"
	r.after(0, "10-a.conflist", true, skips, "chosen 10-a.conflist"+choseFirst, wroteOurs)
	r.remove("10-a.conflist")
	broken := "skipped 99-broken.conf: is not valid JSON"
	gone := "the primary network's file /10-a.conflist is gone"
	r.after(0, "10-a.conflist", false, broken, gone)
	r.after(lossGrace-1, "10-a.conflist", false)
	r.after(1, "", false, "lost /10-a.conflist, withdrawn true")
	r.after(0, "", false, waitsAny)
	r.write("20-b.conf", side20) // chosen afresh: without our file the runtime takes it anyway
	r.after(0, "20-b.conf", true, "chosen 20-b.conf"+choseFirst, wroteOurs)
	r.remove("20-b.conf")
	r.after(0, "20-b.conf", false, "the primary network's file /20-b.conf is gone")
	r.write("20-b.conf", side20) // replaced, not lost
	r.after(lossGrace, "20-b.conf", true)

	r.remove("20-b.conf")
	r.write("30-other.json", side20) // no candidate for us, but the runtime takes it
	r.after(0, "20-b.conf", false, "the primary network's file /20-b.conf is gone")
	r.after(lossGrace, "20-b.conf", false, "lost /20-b.conf, withdrawn false")
	r.remove("30-other.json")
	r.after(time.Second, "", false, "lost /20-b.conf, withdrawn true")
}

func TestR6ReadinessIndicator(t *testing.T) {
	r := newRig(t, func(dir string, cfg *config.Config) {
		cfg.ReadinessIndicatorFile = dir + "/ready"
		cfg.CNIConfigDir = dir + "/out"
	})
	if err := os.Mkdir(r.path("out"), 0o755); err != nil {
		t.Fatal(err)
	}
	ours := func() bool { return !gone(r.path("out/00-multus.conf")) }
	r.write("10-a.conflist", main10)
	waits := "waiting for the readinessindicatorfile /ready"
	r.after(0, "", false, waits)
	r.after(time.Hour, "", false)
	r.write("ready", "")
	r.after(0, "", true, "chosen 10-a.conflist"+choseFirst, "written /out/00-multus.conf")
	r.remove("ready")
	r.after(0, "", false, waits)
	if !ours() {
		t.Error("withdrawn at once")
	}
	r.after(lossGrace, "", false, "lost /ready, withdrawn true")
	if ours() {
		t.Error("not withdrawn")
	}
	r.write("ready", "")
	r.after(0, "", true, "chosen 10-a.conflist"+choseFirst, "written /out/00-multus.conf")
}

func TestR1ForeignChangesAreUndone(t *testing.T) {
	r := newRig(t, nil)
	r.write("10-a.conflist", main10)
	r.after(0, "10-a.conflist", true, "chosen 10-a.conflist"+choseFirst, wroteOurs)
	rename := func() {
		if err := os.Rename(r.path(FileName), r.path(FileName+".cilium_bak")); err != nil {
			t.Fatal(err)
		}
	}
	const change = "another program removed /00-multus.conf (there is 00-multus.conf.cilium_bak)"
	rename()
	r.after(time.Second, "10-a.conflist", true, "foreign, restore in 0s: "+change, wroteOurs)
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		wait *= time.Second
		rename()
		r.after(0, "", false, fmt.Sprintf("foreign, restore in %s: %s", wait, change), change+"; it is put right shortly")
		r.after(wait-1, "", false)
		r.after(1, "10-a.conflist", true, wroteOurs)
	}
	r.write(FileName, `{}`)
	r.after(calmAfter+1, "10-a.conflist", true, "foreign, restore in 0s: another program changed /00-multus.conf", wroteOurs)
	r.write("00-first.conf", `{"name":"multus-like","type":"multus"}`) // not ours, and not valid either
	r.after(time.Second, "10-a.conflist", true, "skipped 00-first.conf: holds Multus itself")
	r.write("00-first.conf", side20)
	r.after(0, "00-first.conf", true, "chosen 00-first.conf"+choseFirst, "shadowed by 00-first.conf", wroteOurs)
	r.after(time.Second, "00-first.conf", true)
}

func TestR4WritesOnlyWhatDiffers(t *testing.T) {
	r := newRig(t, nil)
	r.write("10-a.conflist", main10)
	r.after(0, "10-a.conflist", true, "chosen 10-a.conflist"+choseFirst, wroteOurs)
	before, err := os.Stat(r.path(FileName))
	if err != nil {
		t.Fatal(err)
	}
	if before.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, want 0600", before.Mode())
	}
	again, err := New(r.w.cfg, r.rec, nil) // the daemon starts anew
	if err != nil {
		t.Fatal(err)
	}
	r.w = again
	r.after(0, "10-a.conflist", true, "chosen 10-a.conflist"+choseFirst)
	after, err := os.Stat(r.path(FileName))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the file was written although nothing differs")
	}
}

func TestC1_3ForceCNIVersion(t *testing.T) {
	r := newRig(t, func(_ string, cfg *config.Config) { cfg.ForceCNIVersion = true })
	const before = `{"cniVersion":"0.3.1","name":"n","type":"t","big":9007199254740993,"x":{"b":1,"a":2}}`
	r.write("real.json", before)
	if err := os.Symlink("real.json", r.path("10-a.conf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.path("real.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	r.after(0, "10-a.conf", true, "written /real.json", "chosen 10-a.conf"+choseFirst, wroteOurs)
	r.after(time.Second, "10-a.conf", true)
	got, err := os.ReadFile(r.path("real.json"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(before, "0.3.1", "1.0.0", 1); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if info, _ := os.Stat(r.path("real.json")); info.Mode().Perm() != 0o640 {
		t.Errorf("mode became %v", info.Mode())
	}
}

func TestR3HostView(t *testing.T) {
	r := newRig(t, func(_ string, cfg *config.Config) { cfg.AuxiliaryCNIChainName = "aux" })
	r.mounts(line("0:70", "/", "/") + line("8:2", "/lib/x", "/etc/hosts") + line("8:1", "/etc/cni/net.d", r.dir))
	r.write("10-a.conflist", main10)
	place, err := placeOf(r.dir, r.w.proc)
	if err != nil {
		t.Fatal(err)
	}
	view := func() (v config.HostView) {
		t.Helper()
		r.w.check(r.t.Context(), r.now)
		raw, err := os.ReadFile(r.path(FileName))
		if err != nil {
			t.Fatal(err)
		}
		var f struct{ Host *config.HostView }
		if err := json.Unmarshal(raw, &f); err != nil || f.Host == nil {
			t.Fatalf("no host view in %s: %v", raw, err)
		}
		return *f.Host
	}
	guess := config.HostView{PrimaryFile: "/etc/cni/net.d/10-a.conflist", Folder: &place, Snapshot: json.RawMessage(main10)}
	if diff := cmp.Diff(guess, view()); diff != "" {
		t.Errorf("a guessed path: %s", diff)
	}

	// The same folder, found below a mounted host root.
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.dir, filepath.Join(root, "etc/cni/net.d")); err != nil {
		t.Fatal(err)
	}
	r.w.cfg.ChrootDir = root
	clear(r.w.folders)
	certain := config.HostView{PrimaryFile: "/etc/cni/net.d/10-a.conflist", Trusted: true, Folder: &place}
	if diff := cmp.Diff(certain, view()); diff != "" {
		t.Errorf("a path proved by the host's root: %s", diff)
	}

	r.w.cfg.ChrootDir, r.w.cfg.HostCNIConfigDir = "", "/srv/net.d"
	clear(r.w.folders)
	certain.PrimaryFile = "/srv/net.d/10-a.conflist"
	if diff := cmp.Diff(certain, view()); diff != "" {
		t.Errorf("a path that was given: %s", diff)
	}
}

func TestT10FixedFile(t *testing.T) {
	r := newRig(t, func(dir string, cfg *config.Config) {
		cfg.MultusConfigFile = dir + "/src/70-multus.conf"
		if err := os.Mkdir(dir+"/src", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cfg.MultusConfigFile, []byte(side20), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	copied := func(want string) {
		t.Helper()
		if got, _ := os.ReadFile(r.path("70-multus.conf")); string(got) != want {
			t.Errorf("the copy holds %q, want %q", got, want)
		}
	}
	r.after(0, "", true, "written /70-multus.conf")
	if state, why := r.w.State(), "copied from the multusConfigFile "+r.path("src/70-multus.conf"); state.Choice.Name != "" || state.Why != why {
		t.Errorf("state is %+v, want no choice and %q", state, why)
	}
	copied(side20)
	r.write("src/70-multus.conf", side20[:9])
	r.after(0, "", false, "failed: multusConfigFile: /src/70-multus.conf is not valid JSON")
	r.after(time.Second, "", false)
	copied(side20)
	r.write("src/70-multus.conf", main10)
	r.after(0, "", true, "written /70-multus.conf")
	copied(main10)
}

func TestT10FixedFileMustExist(t *testing.T) {
	dir := t.TempDir()
	cfg := defaults()
	cfg.MultusConfigFile, cfg.CNIConfigDir = dir+"/absent.conf", dir
	_, err := New(cfg, &recorder{}, nil)
	path := dir + "/absent.conf"
	want := `multusConfigFile is "` + path + `": want "auto" or a CNI configuration file: stat ` + path + `: no such file or directory`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestT10FixedFileInPlaceIsLeftAlone(t *testing.T) {
	r := newRig(t, func(dir string, cfg *config.Config) {
		cfg.MultusConfigFile, cfg.CleanupConfigOnExit = dir+"/70-multus.conf", true
		if err := os.WriteFile(cfg.MultusConfigFile, []byte(side20), 0o640); err != nil {
			t.Fatal(err)
		}
	})
	r.after(0, "", true)
	if err := r.w.cleanUp(); err != nil {
		t.Error(err)
	}
	if gone(r.path("70-multus.conf")) {
		t.Error("the administrator's own file was removed")
	}
}

// run starts the watcher's own loop; stop ends it and returns its error.
func (r *rig) run() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	r.t.Cleanup(func() { stop() })
	return stop
}

// putBack gives lines back that come after the one that was looked for.
func (r *recorder) putBack(lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(lines, r.lines...)
}

// await waits until the watcher has told a line; what it tells later stays to be told.
func (r *rig) await(line string) {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	var seen []string
	for {
		told := r.rec.take()
		if i := slices.Index(told, line); i >= 0 {
			r.rec.putBack(slices.Clone(told[i+1:]))
			return
		}
		seen = append(seen, told...)
		select {
		case <-r.rec.wake:
		case <-deadline:
			r.t.Fatalf("never told %q, only %q", line, seen)
		}
	}
}

func TestT9EndOfTheDaemon(t *testing.T) {
	for name, cleanup := range map[string]bool{"kept": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r := newRig(t, func(_ string, cfg *config.Config) { cfg.CleanupConfigOnExit = cleanup })
			stop := r.run()
			r.await(waitsAny)
			r.write("10-a.conflist", main10)
			r.await(wroteOurs)
			r.remove(FileName)
			r.await("foreign, restore in 0s: another program removed /00-multus.conf")
			r.await(wroteOurs)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if gone(r.path(FileName)) != cleanup {
				t.Errorf("gone is %t, want %t", gone(r.path(FileName)), cleanup)
			}
		})
	}
}

func TestR7FolderMadeLater(t *testing.T) {
	r := newRig(t, func(dir string, cfg *config.Config) { cfg.MultusAutoconfigDir = dir + "/later" })
	stop := r.run()
	r.await("failed: multusAutoconfigDir: open /later: no such file or directory")
	if err := os.Mkdir(r.path("later"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("later/10-a.conflist", main10)
	r.await(wroteOurs)
	if err := stop(); err != nil { // the look that wrote it has ended then, and made its state known
		t.Fatal(err)
	}
	if state := r.w.State(); state.Choice.Name != "10-a.conflist" {
		t.Errorf("state is %+v", state)
	}
}

// TestI2_ClusterNetworkAsSnapshot: a primary network that is a definition travels
// inside the generated file, and is followed.
func TestI2_ClusterNetworkAsSnapshot(t *testing.T) {
	r := newRig(t, func(_ string, cfg *config.Config) { cfg.ClusterNetwork = "main" })
	var primary *cniconf.Config
	failure := errors.New("not there")
	r.w.resolve = func(context.Context) (*cniconf.Config, error) { return primary, failure }
	r.after(0, "", false, "waiting for the clusterNetwork main: not there")

	snapshot := func() string {
		raw, err := os.ReadFile(r.path(FileName))
		if err != nil {
			t.Fatal(err)
		}
		var f struct{ Host *config.HostView }
		if err := json.Unmarshal(raw, &f); err != nil {
			t.Fatal(err)
		}
		if f.Host == nil {
			return "none"
		}
		return string(f.Host.Snapshot)
	}
	for _, step := range []struct {
		primary *cniconf.Config
		want    string
	}{
		{ref(parsed(t, `{"name":"main","type":"bridge"}`)), `{"name":"main","type":"bridge"}`},
		{ref(parsed(t, `{"name":"main","type":"ptp"}`)), `{"name":"main","type":"ptp"}`},
		{nil, "none"}, // only the daemon can plan it
	} {
		primary, failure = step.primary, nil
		r.after(time.Second, "main", true, wroteOurs)
		if got := snapshot(); got != step.want {
			t.Errorf("snapshot %s, want %s", got, step.want)
		}
	}
}

func ref[T any](v T) *T { return &v }
