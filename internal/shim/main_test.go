package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// run runs the plugin as a program.
func (r *rig) run(verb string, changes object, args ...string) (code int, stdout string) {
	r.Helper()
	inv := r.call(changes)
	cmd := exec.CommandContext(r.Context(), r.path(program), args...)
	cmd.Dir, cmd.Stdin = r.dir, bytes.NewReader(inv.Stdin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + inv.ContainerID, "CNI_NETNS=" + inv.NetNS, "CNI_IFNAME=" + inv.Interface,
		"CNI_ARGS=" + inv.Args, "CNI_PATH=" + inv.Path, "MARK=program",
	}
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		r.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestC1_2Program: what the runtime sees of a call.
func TestC1_2Program(t *testing.T) {
	type outcome struct {
		Code   int
		Stdout string
	}
	broken := object{"addTimeout": "soon"}
	const told = `"code":7,"msg":"the Multus configuration: key \"addTimeout\": expected a duration above zero such as \"30s\", or a number of seconds, found the text \"soon\""}` + "\n"
	older := object{"addTimeout": "soon", "cniVersion": "0.3.1"}
	for name, c := range map[string]struct {
		verb    string
		changes object
		args    []string
		want    outcome
	}{
		"--version":               {args: []string{"--version"}, want: outcome{0, "multus-shim: version:test\n"}},
		"-v":                      {args: []string{"-v"}, want: outcome{0, "multus-shim: version:test\n"}},
		"an unknown flag":         {args: []string{"--verbose"}, want: outcome{2, ""}},
		"VERSION":                 {verb: "VERSION", want: outcome{0, `{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"}},
		"an error":                {verb: "ADD", changes: broken, want: outcome{1, `{"cniVersion":"1.0.0",` + told}},
		"an error, older runtime": {verb: "ADD", changes: older, want: outcome{1, `{"cniVersion":"0.3.1",` + told}},
		"DEL's error":             {verb: "DEL", changes: older, want: outcome{1, `{"cniVersion":"0.3.1",` + told}},
		"DEL of nothing":          {verb: "DEL", want: outcome{0, ""}},
		"STATUS":                  {verb: "STATUS", changes: object{"cniVersion": "1.1.0"}, want: outcome{0, ""}},
		"a verb that is none":     {verb: "PLUG", want: outcome{1, `{"cniVersion":"1.1.0","code":4,"msg":"unknown CNI_COMMAND: PLUG"}` + "\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var got outcome
			got.Code, got.Stdout = r.run(c.verb, c.changes, c.args...)
			r.Same("outcome", c.want, got)
		})
	}
}

// TestC1_2ProgramAdds a plain pod with nobody behind the socket, and answers with its result.
func TestC1_2ProgramAdds(t *testing.T) {
	r := newRig(t)
	r.stdin["daemonSocketDir"] = r.path("run")
	code, stdout := r.run("ADD", nil)
	var got object
	r.Must(json.Unmarshal([]byte(stdout), &got))
	r.Same("the result", result("1.0.0", "eth0", r.inv.NetNS), got)
	calls := r.calls()
	if code != 0 || len(calls) != 1 || calls[0].Mark != "program" {
		t.Errorf("exit %d, calls %+v", code, calls)
	}
	// Of the delegate's error the runtime gets the code.
	r.writeConf("net.d/10-primary.conf", r.network("primary", object{"ADD": object{"code": 111, "msg": "no addresses left"}}))
	r.inv.ContainerID = "c2"
	code, stdout = r.run("ADD", nil)
	const want = `{"cniVersion":"1.0.0","code":111,"msg":"pod app/web: network primary (interface eth0): ADD: plugin \"scripted\" (ADD): no addresses left"}` + "\n"
	if code != 1 || stdout != want {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// TestR19NoPlannerToBeHad: what an invocation opened before is closed.
func TestR19NoPlannerToBeHad(t *testing.T) {
	r := newRig(t)
	closed := 0
	r.plugin.Planner = func(*config.Config, *slog.Logger) (Planner, func(), error) { return nil, nil, errors.New("no client") }
	r.plugin.Logger = func(*config.Config) (*slog.Logger, io.Closer) {
		return slog.New(slog.DiscardHandler), closer(func() { closed++ })
	}
	_, err := r.add(nil)
	r.Fails(err, types.ErrInternal, "no client")
	r.Same("closed", 1, closed)
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// answering is a daemon that answers every request like this, on a socket in r's
// folder "run"; it returns where it tells the paths it was asked.
func answering(t *testing.T, status int, body string) (cfg *config.Config, paths <-chan string) {
	t.Helper()
	asked := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		asked <- req.URL.Path
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return &config.Config{DaemonSocketDir: dir, DaemonTimeout: time.Minute}, asked
}

// TestR9PlansOfOtherDaemons: one that this plugin cannot read is no plan.
func TestR9PlansOfOtherDaemons(t *testing.T) {
	primary := `{"role":"primary","network":"p","interface":"eth0","config":{"cniVersion":"1.0.0","name":"p","plugins":[{"type":"x"}]},"args":[]}`
	for name, c := range map[string]struct {
		status int
		body   string
		code   uint // 0 for a plan
		words  string
	}{
		"ours":           {200, `{"plan":{"version":1,"pod":{"namespace":"a","name":"b"},"attachments":[` + primary + `]}}`, 0, ""},
		"a newer plan":   {200, `{"plan":{"version":2,"attachments":[` + primary + `]}}`, types.ErrTryAgainLater, "it has version 2, this plugin reads 1: update both"},
		"an empty plan":  {200, `{"plan":{"version":1}}`, types.ErrTryAgainLater, "no attachments"},
		"no plan at all": {200, `{}`, types.ErrTryAgainLater, "cannot be read"},
		"a broken plan":  {200, `{"plan":{"version":"x"}}`, types.ErrTryAgainLater, "cannot be read"},
		"a CNI error":    {400, `{"code":7,"msg":"wrong"}`, 7, "wrong"},
		"it depends":     {409, `{"code":11,"msg":"cold"}`, types.ErrTryAgainLater, "cold"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := answering(t, c.status, c.body)
			p, done, err := Remote(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			got, err := p.Plan(t.Context(), api.PlanRequest{})
			if c.code != 0 {
				check.T{T: t}.Fails(err, c.code, c.words)
			} else if err != nil || got.Attachments[0].Network != "p" {
				t.Errorf("got %+v, %v", got, err)
			}
			if errors.Is(err, api.ErrDepends) != (c.status == 409) {
				t.Errorf("depends: %v", err)
			}
		})
	}
}

// TestI2_ReportsToTheDaemon: a status that is required and was not written is an error.
func TestI2_ReportsToTheDaemon(t *testing.T) {
	for name, c := range map[string]struct {
		required bool
		body     string
		report   api.Report
		fails    bool
	}{
		"published":                {true, `{"published":true}`, api.Report{Verb: "ADD"}, false},
		"later":                    {false, `{"published":false}`, api.Report{Verb: "ADD"}, false},
		"required, later":          {true, `{"published":false}`, api.Report{Verb: "ADD"}, true},
		"required, of a failure":   {true, `{"published":false}`, api.Report{Verb: "ADD", Error: types.NewError(1, "x", "")}, false},
		"told, and nobody answers": {true, `{"published":false}`, api.Report{Verb: "ADD", NoWait: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, paths := answering(t, 200, c.body)
			if c.required {
				cfg.NetworkStatus = "required"
			}
			p, done, err := Remote(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			c.report.Pod = api.Pod{Namespace: "app", Name: "web"}
			if err = p.Report(t.Context(), c.report); c.fails {
				check.T{T: t}.Fails(err, types.ErrTryAgainLater, "pod app/web: its network-status could not be written in time")
			} else if err != nil {
				t.Error(err)
			}
			if got := <-paths; got != api.PathReport {
				t.Errorf("asked for %s", got)
			}
		})
	}
}

// TestR3NobodyBehindTheSocket: a plain pod's caller does not wait for a daemon to come.
func TestR3NobodyBehindTheSocket(t *testing.T) {
	p, done, err := Remote(&config.Config{DaemonSocketDir: t.TempDir(), DaemonTimeout: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := p.Plan(t.Context(), api.PlanRequest{Plain: true}); !api.TryLater(err) || strings.Contains(err.Error(), "1h") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Plan(ctx, api.PlanRequest{}); !api.TryLater(err) {
		t.Errorf("got %v", err)
	}
}
