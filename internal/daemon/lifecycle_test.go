package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
)

// lineLog is a log without times.
func lineLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestC1_8Socket: its mode, and that one of a daemon that was killed is replaced.
func TestC1_8Socket(t *testing.T) {
	r := prepare(t, nil)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path(api.SocketName)})
	r.Must(err)
	stale.SetUnlinkOnClose(false)
	r.Must(stale.Close())
	r.write(fmt.Sprintf("%s.%d", api.SocketName, os.Getpid()), "of a daemon that had this process id")
	r.start()
	info, err := os.Lstat(r.path(api.SocketName))
	r.Must(err)
	r.Same("the socket's mode", os.ModeSocket|0o600, info.Mode())
	r.stop()
	r.end()
	left, err := filepath.Glob(r.path(api.SocketName) + "*")
	r.Must(err)
	r.Same("left behind", []string(nil), left)
}

// TestR9SecondDaemon: one comes before the other goes, which leaves the socket to it.
func TestR9SecondDaemon(t *testing.T) {
	old := run(t, nil)
	young := prepare(t, map[string]any{"socketDir": old.dir})
	young.dir = old.dir
	young.d.Cluster.(*fakeCluster).problem = "young"
	ctx := t.Context()
	ended := make(chan error, 1)
	before, err := os.Lstat(old.path(api.SocketName))
	old.Must(err)
	go func() { ended <- young.d.Run(ctx) }()
	old.Eventually("the young one has the socket", func() bool {
		now, err := os.Lstat(old.path(api.SocketName))
		return err == nil && !os.SameFile(before, now)
	})
	old.stop()
	old.end()
	status, why := young.http(http.MethodGet, api.PathReadyz, "")
	young.Same("who answers", []any{500, "young"}, []any{status, why})
}

// TestR9SocketIsClosedOnce: the server closes it, and the daemon does; a socket that was
// made in between may have its inode.
func TestR9SocketIsClosedOnce(t *testing.T) {
	dir := t.TempDir()
	for range 10 {
		old, err := listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		first := old.Close()
		young, err := listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(first, old.Close()); err != nil {
			t.Error(err)
		}
		if young.gone() {
			t.Error("the young daemon's socket was taken away")
		}
		if err := young.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestR8StrangerIsNotHeard: a process of another user than root gets no answer, even
// where the file's mode lets it in.
func TestR8StrangerIsNotHeard(t *testing.T) {
	r := run(t, nil)
	r.Must(os.Chmod(r.dir, 0o755))
	r.Must(os.Chmod(r.path(api.SocketName), 0o666))
	for uid, want := range map[uint32]string{0: "HTTP/1.1 200 OK", 65534: "closed"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"STRANGER_TO=" + r.dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		r.Must(err)
		r.Same(fmt.Sprintf("what user %d gets", uid), want, strings.TrimSpace(string(out)))
	}
	r.Same("a request was counted", 200, r.status(http.MethodGet, api.PathHealthz, ""))
}

// strangerCalls prints what the daemon answers to this process.
func strangerCalls(dir string) int {
	conn, err := net.Dial("unix", filepath.Join(dir, api.SocketName))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		line = "closed"
	}
	fmt.Println(line)
	return 0
}

// TestT10WhatCannotBeServed ends the daemon, with the key in the line.
func TestT10WhatCannotBeServed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		keys  map[string]any
		ends  error
		words string
	}{
		"a port that is taken":    {keys: map[string]any{"metricsPort": taken.Addr().(*net.TCPAddr).Port, "metricsAddress": "127.0.0.1"}, words: `key "metricsPort": listen tcp 127.0.0.1:`},
		"an address of no one":    {keys: map[string]any{"metricsPort": 1, "metricsAddress": "192.0.2.1"}, words: `key "metricsPort": listen tcp 192.0.2.1:1`},
		"a folder that is a file": {keys: map[string]any{"socketDir": "/proc/self/status"}, words: `key "socketDir": mkdir /proc/self/status: not a directory`},
		"a cluster that ends":     {ends: errAway, words: errAway.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			r := prepare(t, c.keys)
			r.ends = c.ends
			err := r.d.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.words)
			}
			if _, err := os.Lstat(r.path(api.SocketName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is there: %v", err)
			}
		})
	}
}

// TestT10WrongConfiguration is found before anything is served.
func TestT10WrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	parsed := func(text string) *config.Config {
		cfg, _, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for text, words := range map[string]string{
		fmt.Sprintf(`{"cniDir":%q}`, file):                                    `key "cniDir": `,
		fmt.Sprintf(`{"cniDir":%q,"multusConfigFile":%q}`, dir, file+".conf"): `multusConfigFile is "` + file + `.conf"`,
	} {
		_, err := New(Options{Config: parsed(text), Cluster: newCluster(), Log: slog.New(slog.DiscardHandler), Generate: true})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %s", text, err, words)
		}
	}
}

// TestR7PlansWaitForThePrimaryNetwork that the daemon has to choose: it is not ready
// without, and plans with what it chose.
func TestR7PlansWaitForThePrimaryNetwork(t *testing.T) {
	r := prepare(t, nil)
	r.Must(os.Mkdir(r.path("net.d"), 0o755))
	text := fmt.Sprintf(`{"cniDir":%q,"socketDir":%q,"cniConfigDir":%q,"multusAutoconfigDir":%q,"multusConfigFile":"auto","cniVersion":"1.0.0"}`,
		r.path("state"), r.dir, r.path("net.d"), r.path("net.d"))
	cfg, _, err := config.Parse([]byte(text))
	r.Must(err)
	r.d, err = New(Options{Config: cfg, ConfigFile: []byte(text), Cluster: r.fakeCluster, Log: slog.New(slog.DiscardHandler), BootID: "boot", Generate: true})
	r.Must(err)
	r.start()
	r.put("web", "u", "")
	_, err = r.plan(r.client(), r.request("web"))
	r.Fails(err, types.ErrTryAgainLater, "")
	r.Same("readiness", 500, r.status(http.MethodGet, api.PathReadyz, ""))
	r.Must(os.Rename(r.path("10-primary.conf"), r.path("net.d/10-primary.conf")))
	r.Eventually("it is ready", func() bool { return r.status(http.MethodGet, api.PathReadyz, "") == 200 })
	got, err := r.plan(r.client(), r.request("web"))
	r.Must(err)
	r.Same("the primary network", "primary", got.Attachments[0].Network)
	if _, text := r.http(http.MethodGet, api.PathMetrics, ""); !strings.Contains(text, "\nmultus_config_changes_total{by=\"multus\"} 1\n") {
		t.Error("the change of the generated configuration is not counted")
	}
	r.Must(os.Remove(r.path("net.d/00-multus.conf")))
	r.write("net.d/00-a.conf", `{"cniVersion":"1.0.0","name":"first","type":"bridge"}`)
	told := []string{
		"disturbed: 00-a.conf goes before the generated configuration, so the runtime does not call Multus",
		"disturbed: another program removed " + r.path("net.d/00-multus.conf") + "; Multus puts it right",
	}
	var heard []string
	r.Eventually("events of the node", func() bool {
		heard = append(heard, r.heard()...)
		slices.Sort(heard)
		return slices.Equal(heard, told)
	})
}

// TestR5Limit is never none.
func TestR5Limit(t *testing.T) {
	if n := limit(&config.Config{}); n < 8 {
		t.Errorf("by default %d", n)
	}
	if n := limit(&config.Config{ConnectionLimit: 3}); n != 3 {
		t.Errorf("got %d, want 3", n)
	}
}
