package confgen

import (
	"bytes"
	gocmp "cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/config"
)

func TestC1_2ThinFile(t *testing.T) {
	stderr := false
	everything := defaults()
	everything.CNIVersion, everything.OverrideNetworkName, everything.Kubeconfig = "1.1.0", true, "/etc/k"
	everything.ConfDir, everything.ReadinessIndicatorFile, everything.BinDir = "/etc/m", "/ready", "/opt/bin"
	everything.NamespaceIsolation, everything.GlobalNamespaces = true, []string{"a", "b"}
	everything.LogLevel, everything.LogFile, everything.LogToStderr = "debug", "/log", &stderr
	older := defaults()
	older.CNIVersion = "0.4.0"
	const mainCapabilities = `"capabilities":{"io.kubernetes.cri.pod-annotations":true,"ips":true,"portMappings":true}`
	tests := map[string]struct {
		in   Input
		list bool
		want string
	}{
		"by path": {
			Input{Config: older, Primary: parsed(t, main10), Path: "/etc/cni/net.d/10-a.conflist"},
			false,
			`{"cniVersion":"0.4.0","name":"multus-cni-network","type":"multus",` + mainCapabilities + `,"clusterNetwork":"/etc/cni/net.d/10-a.conflist"}`,
		},
		"inlined, with the primary's version": {
			Input{Config: defaults(), Primary: parsed(t, side20)},
			false,
			`{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","capabilities":{"io.kubernetes.cri.pod-annotations":true},"delegates":[` + side20 + `]}`,
		},
		"a list, with everything": {
			Input{Config: everything, Primary: parsed(t, main10)},
			true,
			`{"cniVersion":"1.1.0","name":"main","plugins":[{"type":"multus",` + mainCapabilities + `,"delegates":[` + main10 + `],"kubeconfig":"/etc/k","confDir":"/etc/m",` +
				`"readinessindicatorfile":"/ready","binDir":"/opt/bin","namespaceIsolation":true,"globalNamespaces":"a,b","logFile":"/log","logLevel":"debug","logToStderr":false}]}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, list, err := GenerateThin(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want+"\n", string(got)); diff != "" || list != tt.list {
				t.Errorf("list is %t: %s", list, diff)
			}
			if list {
				return
			}
			if _, warnings, err := config.Parse(got); err != nil || len(warnings) > 0 { // the plugin takes it
				t.Errorf("read back: %v, %v", warnings, err)
			}
		})
	}
}

func TestC1_2ThinFileNeedsAVersionOfCNI(t *testing.T) {
	cfg := defaults()
	cfg.CNIVersion = "four"
	if got, _, err := GenerateThin(Input{Config: cfg, Primary: parsed(t, side20)}); err == nil || !strings.HasPrefix(err.Error(), "cniVersion: ") {
		t.Errorf("got %s, %v", got, err)
	}
}

// newThinRig is newRig with a Watcher of the thin plugin's configuration.
func newThinRig(t *testing.T, thin Thin, adjust func(dir string, cfg *config.Config)) *rig {
	t.Helper()
	r := newRig(t, adjust)
	w, err := NewThin(r.w.cfg, r.rec, thin)
	if err != nil {
		t.Fatal(err)
	}
	r.w = w
	return r
}

// mounts makes the Watcher see another mount table.
func (r *rig) mounts(mountinfo string) {
	r.t.Helper()
	r.w.proc = r.t.TempDir()
	for name, content := range map[string]string{"self/mountinfo": mountinfo, "sys/kernel/random/boot_id": "some-boot\n"} {
		path := filepath.Join(r.w.proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// look checks once and compares what is told, and which files are in the folder then.
func (r *rig) look(files string, lines ...string) {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	r.w.check(r.t.Context(), r.now)
	if diff := cmp.Diff(lines, r.rec.take()); diff != "" {
		r.t.Errorf("observed: %s", diff)
	}
	r.holds(files)
}

func (r *rig) holds(files string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != files {
		r.t.Errorf("the folder holds %s, want %s", got, files)
	}
}

// primary is what the generated file says of the primary network.
func (r *rig) primary(file string) string {
	r.t.Helper()
	raw, err := os.ReadFile(r.path(file))
	if err != nil {
		r.t.Fatal(err)
	}
	type plugin struct {
		ClusterNetwork string
		Delegates      json.RawMessage
	}
	var f struct {
		plugin
		Plugins []plugin
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		r.t.Fatal(err)
	}
	if len(f.Plugins) > 0 {
		f.plugin = f.Plugins[0]
	}
	return f.ClusterNetwork + string(f.Delegates)
}

func (r *rig) has(file, primary string) {
	r.t.Helper()
	if got := r.primary(file); got != primary {
		r.t.Errorf("the primary network is %s, want %s", got, primary)
	}
}

const (
	wroteList   = "written /00-multus.conflist"
	removedOurs = "removed /00-multus.conf"
	removedList = "removed /00-multus.conflist"
)

// TestC1_9ThinFileName: the name follows the CNI version, and no second file of ours
// stays, which the runtime might take.
func TestC1_9ThinFileName(t *testing.T) {
	r := newThinRig(t, Thin{}, func(_ string, cfg *config.Config) { cfg.CNIVersion = "" })
	r.write(FileName, `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus"}`) // an older version's
	r.write("10-a.conflist", main10)
	r.look("00-multus.conflist 10-a.conflist", "chosen 10-a.conflist"+choseFirst, wroteList, removedOurs)
	r.write("10-a.conflist", strings.Replace(main10, "1.0.0", "0.4.0", 1))
	r.look("00-multus.conf 10-a.conflist", wroteOurs, removedList)
	r.look("00-multus.conf 10-a.conflist")
	r.w.cfg.CleanupConfigOnExit = true
	if err := r.w.cleanUp(); err != nil {
		t.Error(err)
	}
	r.holds("10-a.conflist")
}

// TestC1_2ThinFileInlinesWhatHasNoCertainPath: what the plugin might not find on the
// host stands in its own configuration.
func TestC1_2ThinFileInlinesWhatHasNoCertainPath(t *testing.T) {
	for name, tt := range map[string]struct{ kubelet, want string }{
		"a guess": {"/lib/x", "[" + main10 + "]"},
		"proven":  {"/var/lib/kubelet/pods/x/etc-hosts", "/etc/cni/net.d/10-a.conflist"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newThinRig(t, Thin{}, nil)
			r.mounts(line("0:70", "/", "/") + line("8:1", tt.kubelet, "/etc/hosts") + line("8:1", "/etc/cni/net.d", r.dir))
			r.write("10-a.conflist", main10)
			r.look("00-multus.conflist 10-a.conflist", "chosen 10-a.conflist"+choseFirst, wroteList)
			r.has("00-multus.conflist", tt.want)
		})
	}
}

// TestC1_2ThinForcesTheVersionOfACopy: the primary network's own file is not touched,
// as in v4's thin entrypoint.
func TestC1_2ThinForcesTheVersionOfACopy(t *testing.T) {
	r := newThinRig(t, Thin{}, func(_ string, cfg *config.Config) { cfg.ForceCNIVersion, cfg.CNIVersion = true, "0.4.0" })
	r.write("20-b.conf", side20)
	r.look("00-multus.conf 20-b.conf", "chosen 20-b.conf"+choseFirst, wroteOurs)
	r.has(FileName, "["+strings.Replace(side20, "0.3.1", "0.4.0", 1)+"]")
	if raw, err := os.ReadFile(r.path("20-b.conf")); err != nil || string(raw) != side20 {
		t.Errorf("%v: the primary network's file holds %s", err, raw)
	}
}

// TestC1_2ThinRenames follows --rename-conf-file through the life of a node.
func TestC1_2ThinRenames(t *testing.T) {
	const renamed, restored = "written /50-main.conflist.old", "written /50-main.conflist"
	thin := Thin{Rename: true}
	r := newThinRig(t, thin, pinned("50-main.conflist"))
	r.w.cfg.CleanupConfigOnExit = true
	r.write("05-my.conf.old", side20)       // somebody's backup
	r.write("50-main.conflist.old", side20) // and one from earlier
	r.write("50-main.conflist", main10)
	r.look("00-multus.conflist 05-my.conf.old 50-main.conflist.old", choseMain, wroteList, renamed)
	r.has("00-multus.conflist", "["+main10+"]")
	r.look("00-multus.conflist 05-my.conf.old 50-main.conflist.old")
	if !r.w.State().Ready {
		t.Errorf("not ready: %s", r.w.State().Why)
	}

	edited := strings.Replace(main10, `"portMappings"`, `"bandwidth"`, 1)
	r.write("50-main.conflist", edited) // the primary network's own daemon has restarted
	r.look("00-multus.conflist 05-my.conf.old 50-main.conflist.old", wroteList, renamed)
	r.has("00-multus.conflist", "["+edited+"]")

	again, err := NewThin(r.w.cfg, r.rec, thin) // this one restarts, after a crash
	if err != nil {
		t.Fatal(err)
	}
	r.w = again
	r.look("00-multus.conflist 05-my.conf.old 50-main.conflist.old", restored, choseMain, renamed)
	r.has("00-multus.conflist", "["+edited+"]")

	if err := r.w.cleanUp(); err != nil {
		t.Error(err)
	}
	r.holds("05-my.conf.old 50-main.conflist")
}

// TestC1_2ThinRenamesThroughACrash: a run that was killed leaves the primary network's
// file out of sight. The next one, whatever it is, finds it by what our file holds, and a
// node is never left without any configuration.
func TestC1_2ThinRenamesThroughACrash(t *testing.T) {
	const ours, file = "00-multus.conflist", "50-main.conflist"
	const chained = `{"cniVersion":"1.1.0","name":"side","plugins":[{"type":"bridge"}]}`
	for name, tt := range map[string]struct {
		primary string            // 50-main.conflist where it is not main10
		then    map[string]string // what is written once the run was killed
		next    func(*rig)        // the next run, where it is not the same again
		restart string            // the folder after its first look
		after   string            // and when it has ended
		early   string            // and when it has ended before its first look; "" for the same
		failure string
	}{
		"alone": {restart: ours + " 50-main.conflist.old", after: file},
		"a backup that sorts first": {
			then:    map[string]string{"05-my.conf.old": side20, "06-broken.conf.old": main10[:40]},
			restart: ours + " 05-my.conf.old 06-broken.conf.old 50-main.conflist.old",
			after:   "05-my.conf.old 06-broken.conf.old " + file,
		},
		"another network": { // which is not moved to
			then:    map[string]string{"60-b.conf": side20},
			restart: ours + " 50-main.conflist.old 60-b.conf", after: file + " 60-b.conf",
		},
		"its owner wrote it": {
			then:    map[string]string{file: strings.Replace(main10, `"portMappings"`, `"bandwidth"`, 1), "05-my.conf.old": main10},
			restart: ours + " 05-my.conf.old 50-main.conflist.old", after: "05-my.conf.old " + file,
			early: "05-my.conf.old " + file + " 50-main.conflist.old",
		},
		"our file is Multus v4's": { // it sorts keys, and forces versions
			then:    map[string]string{ours: `{"cniVersion":"1.0.0","name":"n","plugins":[{"delegates":[` + sorted(t, main10, "0.4.0") + `],"type":"multus"}]}`},
			restart: ours + " 50-main.conflist.old", after: file,
		},
		"plugins of a folder": {
			primary: chained,
			restart: ours + " 50-main.conflist.old side", after: file + " side",
		},
		"nothing like it": { // edited, say: what our file holds is all there is
			then:    map[string]string{"50-main.conflist.old": side20},
			restart: ours + " 50-main.conflist.old", after: ours + " 50-main.conflist.old",
			failure: "cleanupConfigOnExit: /00-multus.conflist holds the only copy of the primary network's configuration: put one into  first",
		},
		"no longer renamed": {
			next:    func(r *rig) { r.w.thin = &Thin{} },
			restart: ours + " " + file, after: file,
		},
		"thick": {
			next:    func(r *rig) { r.w.thin = nil },
			restart: FileName + " " + file, after: file,
		},
	} {
		t.Run(name, func(t *testing.T) {
			killed := func(t *testing.T) *rig {
				r := newThinRig(t, Thin{Rename: true}, func(_ string, cfg *config.Config) { cfg.CleanupConfigOnExit = true })
				if tt.primary != "" {
					if err := os.Mkdir(r.path("side"), 0o755); err != nil {
						t.Fatal(err)
					}
					r.write("side/tuning.conf", `{"type":"tuning"}`)
				}
				r.write(file, gocmp.Or(tt.primary, main10))
				r.w.check(t.Context(), r.now)
				for name, content := range tt.then {
					r.write(name, content)
				}
				again, err := NewThin(r.w.cfg, r.rec, *r.w.thin)
				if err != nil {
					t.Fatal(err)
				}
				r.w = again
				if tt.next != nil {
					tt.next(r)
				}
				return r
			}
			ends := func(r *rig) {
				t.Helper()
				got := ""
				if err := r.w.cleanUp(); err != nil {
					got = strings.ReplaceAll(err.Error(), r.dir, "")
				}
				if got != tt.failure {
					t.Errorf("cleanUp: %q, want %q", got, tt.failure)
				}
			}
			r := killed(t)
			r.w.check(t.Context(), r.now)
			r.holds(tt.restart)
			ends(r)
			r.holds(tt.after)

			early := killed(t) // and ended before its first look
			ends(early)
			early.holds(gocmp.Or(tt.early, tt.after))
		})
	}
}

// sorted is a configuration as Go's maps give it back, of another CNI version.
func sorted(t *testing.T, conf, version string) string {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(conf), &values); err != nil {
		t.Fatal(err)
	}
	values["cniVersion"] = version
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestC1_2ThinRenamesOneFile: a network that is left for another comes back into sight.
func TestC1_2ThinRenamesOneFile(t *testing.T) {
	r := newThinRig(t, Thin{Rename: true}, nil)
	r.write("50-main.conflist", main10)
	r.look("00-multus.conflist 50-main.conflist.old", "chosen 50-main.conflist"+choseFirst, wroteList, "written /50-main.conflist.old")
	r.write("20-b.conf", side20)
	r.look("00-multus.conflist 20-b.conf.old 50-main.conflist", "chosen 20-b.conf"+choseFirst, "written /50-main.conflist", wroteList, "written /20-b.conf.old")
	r.look("00-multus.conflist 20-b.conf.old 50-main.conflist")
}

// TestC1_2ThinTakesNoBackupForThePrimary: without a name, no file is brought back.
func TestC1_2ThinTakesNoBackupForThePrimary(t *testing.T) {
	r := newThinRig(t, Thin{Rename: true}, nil)
	r.write("05-my.conf.old", side20)
	r.look("05-my.conf.old", waitsAny)
}

// TestC1_2ThinLeavesTheIndicatorToThePlugin, which alone has the host's paths.
func TestC1_2ThinLeavesTheIndicatorToThePlugin(t *testing.T) {
	r := newThinRig(t, Thin{}, func(_ string, cfg *config.Config) { cfg.ReadinessIndicatorFile = "/nowhere/ready" })
	r.write("10-a.conflist", main10)
	r.look("00-multus.conflist 10-a.conflist", "chosen 10-a.conflist"+choseFirst, wroteList)
	raw, err := os.ReadFile(r.path("00-multus.conflist"))
	if err != nil || !strings.Contains(string(raw), `"readinessindicatorfile":"/nowhere/ready"`) {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestC1_2ThinOnce is --skip-config-watch: the primary network is waited for, and from
// then on nothing is followed.
func TestC1_2ThinOnce(t *testing.T) {
	r := newThinRig(t, Thin{Once: true}, nil)
	r.w.cfg.CleanupConfigOnExit = true
	stop := r.run()
	r.await(waitsAny)
	if n := watches(t); n != 1 {
		t.Errorf("%d watches of folders while it waits, want 1", n)
	}
	r.write("10-a.conflist", main10)
	r.await(wroteList)
	for deadline := time.Now().Add(10 * time.Second); !waitsForTheEnd() || watches(t) > 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it still follows, or has ended")
		}
	}
	r.holds("00-multus.conflist 10-a.conflist")
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.holds("10-a.conflist")
}

// waitsForTheEnd tells whether a Watcher runs and follows nothing.
func waitsForTheEnd() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Contains(stacks, []byte("(*Watcher).Run(")) && !bytes.Contains(stacks, []byte("(*Watcher).follow("))
}

// watches counts the inotify instances of this process.
func watches(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// TestC1_9NoFileOfAnotherInstallation: thick and thin have files of different names, and
// the runtime would run the one that is left. A file of that name that runs no plugin
// of ours is somebody else's.
func TestC1_9NoFileOfAnotherInstallation(t *testing.T) {
	const (
		thinList = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"multus","clusterNetwork":"/x"}]}`
		thick    = `{"cniVersion":"1.0.0","name":"n","type":"multus-shim","clusterNetwork":"/x"}`
		list     = "00-multus.conflist"
	)
	fixed := func(name string, inPlace bool) func(string, *config.Config) {
		return func(dir string, cfg *config.Config) {
			if !inPlace {
				dir = t.TempDir()
			}
			cfg.MultusConfigFile = filepath.Join(dir, name)
			if err := os.WriteFile(cfg.MultusConfigFile, []byte(thick), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	both := map[string]string{FileName: thick, list: thinList}
	for name, tt := range map[string]struct {
		thin   *Thin
		adjust func(string, *config.Config)
		left   map[string]string
		want   string
		shadow string
	}{
		"thin to thick":       {nil, nil, map[string]string{list: thinList}, FileName + " 10-a.conflist", ""},
		"thick to thin":       {&Thin{}, nil, map[string]string{FileName: thick}, list + " 10-a.conflist", ""},
		"a file of the admin": {&Thin{}, nil, map[string]string{FileName: side20}, FileName + " " + list + " 10-a.conflist", FileName},
		"to a fixed file":     {nil, fixed("05-multus.conf", false), both, "05-multus.conf 10-a.conflist", ""},
		"to one in its place": {nil, fixed("05-multus.conf", true), both, "05-multus.conf 10-a.conflist", ""},
		"to one that the runtime would not take": { // the stale one is better than none
			nil, fixed("70-multus.conf", false), both, FileName + " " + list + " 10-a.conflist 70-multus.conf", "10-a.conflist",
		},
		"to one in its place that the runtime would not take": {
			nil, fixed("70-multus.conf", true), both, FileName + " " + list + " 10-a.conflist 70-multus.conf", "10-a.conflist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.adjust)
			r.w.thin = tt.thin
			for name, content := range tt.left {
				r.write(name, content)
			}
			if tt.adjust == nil {
				r.w.check(t.Context(), r.now) // no primary network yet: what is there keeps the node going
			}
			r.write("10-a.conflist", main10)
			r.w.check(t.Context(), r.now)
			r.holds(tt.want)
			if r.w.shadow != tt.shadow {
				t.Errorf("shadowed by %q, want %q", r.w.shadow, tt.shadow)
			}
		})
	}
}

// TestC1_9OtherFileStaysUntilOursIsThere: while another program keeps removing ours, the
// one that it leaves is all that the node has.
func TestC1_9OtherFileStaysUntilOursIsThere(t *testing.T) {
	r := newRig(t, nil)
	r.write("10-a.conflist", main10)
	r.w.check(t.Context(), r.now)
	for range 2 {
		r.remove(FileName)
		r.write("00-multus.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"multus"}]}`)
		r.w.check(t.Context(), r.now)
	}
	r.holds("00-multus.conflist 10-a.conflist")
	r.now = r.now.Add(time.Second)
	r.w.check(t.Context(), r.now)
	r.holds("00-multus.conf 10-a.conflist")
}
