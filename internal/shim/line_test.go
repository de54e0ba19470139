package shim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/logging"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestI4_LogLine: what an operation's line says, in both formats.
func TestI4_LogLine(t *testing.T) {
	pod := api.Pod{Namespace: "app", Name: "web", UID: "u"}
	attachments := []api.Attachment{
		{Network: "main", Interface: "eth0", Addresses: []string{"10.1.0.2/24", "fd00::2/64"}, Millis: 3},
		{Network: "app/lan", Interface: "net1", Millis: 12, Failed: true},
	}
	for name, c := range map[string]struct {
		report     api.Report
		text, json string
	}{
		"an ADD": {
			api.Report{Verb: "ADD", ContainerID: "c1", Pod: pod, Attachments: attachments[:1], Millis: 17},
			`level=verbose msg=ADD pod=app/web sandbox=c1 networks="main:eth0 10.1.0.2/24 fd00::2/64 3ms" millis=17`,
			`"level":"verbose","msg":"ADD","pod":"app/web","sandbox":"c1","networks":[{"network":"main","interface":"eth0","addresses":["10.1.0.2/24","fd00::2/64"],"millis":3}],"millis":17}`,
		},
		"a DEL": {
			api.Report{Verb: "DEL", ContainerID: "c1", Pod: pod, Attachments: attachments, Millis: 17},
			`level=verbose msg=DEL pod=app/web sandbox=c1 networks="main:eth0 10.1.0.2/24 fd00::2/64, app/lan:net1" millis=17`,
			`"level":"verbose","msg":"DEL","pod":"app/web","sandbox":"c1","networks":[{"network":"main","interface":"eth0","addresses":["10.1.0.2/24","fd00::2/64"]},{"network":"app/lan","interface":"net1"}],"millis":17}`,
		},
		"a failure": {
			api.Report{Verb: "ADD", ContainerID: "c1", Pod: pod, Attachments: attachments, Millis: 17, Error: types.NewError(11, "no\naddress", "")},
			`level=error msg="ADD failed" pod=app/web sandbox=c1 networks="main:eth0 10.1.0.2/24 fd00::2/64 3ms, app/lan:net1 12ms failed" millis=17 code=11 error="no\naddress"`,
			`"level":"error","msg":"ADD failed","pod":"app/web","sandbox":"c1","networks":[{"network":"main","interface":"eth0","addresses":["10.1.0.2/24","fd00::2/64"],"millis":3},{"network":"app/lan","interface":"net1","millis":12,"failed":true}],"millis":17,"code":11,"error":"no\naddress"}`,
		},
		"no pod and no networks": {
			api.Report{Verb: "GC", Millis: 1},
			`level=verbose msg=GC sandbox="" millis=1`,
			`"level":"verbose","msg":"GC","sandbox":"","millis":1}`,
		},
	} {
		for format, want := range map[string]string{"text": c.text, "json": c.json} {
			var out bytes.Buffer
			log, _ := logging.New(&config.Config{LogLevel: "verbose", LogFormat: format}, &out, true)
			LogReport(log, c.report)
			separator := map[string]string{"text": " ", "json": ","}[format]
			_, got, _ := strings.Cut(out.String(), separator) // the time
			check.T{T: t}.Same(name+" as "+format, want+"\n", got)
		}
	}
}

// TestI4_OneLineAnOperation, in the log of the plugin, and nothing of configurations.
func TestI4_OneLineAnOperation(t *testing.T) {
	r := newRig(t)
	var out buffer
	cfg, _, err := config.Parse([]byte(`{"logLevel":"debug","logToStderr":true}`))
	r.Must(err)
	r.plugin.Logger = func(*config.Config) (*slog.Logger, io.Closer) { return logging.New(cfg, &out, true) }
	secret := func(answers object) object {
		conf := r.network("lan", answers)
		conf["password"] = "s3cret"
		return conf
	}
	withLAN := func(answers object) func(context.Context, api.PlanRequest) (*plan.Plan, error) {
		return func(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
			p, err := r.with("lan")(ctx, req)
			p.Attachments[1].Config = r.parse(secret(answers))
			return p, err
		}
	}
	changes := object{"runtimeConfig": selecting("lan"), "kubeconfig": "/etc/s3cret"}
	r.planner.plan = withLAN(nil)
	_, err = r.add(changes)
	r.Must(err)
	r.Must(r.plugin.Del(t.Context(), r.call(changes)))
	r.planner.plan = withLAN(object{"ADD": object{"code": 100, "msg": "no carrier"}})
	_, err = r.add(changes)
	r.Fails(err, 100, "no carrier")
	r.planner.plan = withLAN(nil)
	r.planner.reportErr = errors.New("forbidden")
	changes["networkStatus"] = "required"
	_, err = r.add(changes)
	r.Fails(err, types.ErrInternal, "forbidden")

	if strings.Contains(out.String(), "s3cret") {
		t.Errorf("a secret is logged:\n%s", out.String())
	}
	var lines []string
	for line := range strings.Lines(regexp.MustCompile(`\d+ms|millis=\d+`).ReplaceAllString(out.String(), "_")) {
		if _, line, _ = strings.Cut(line, " "); strings.Contains(line, " pod=app/web sandbox=c1 ") {
			lines = append(lines, line)
		}
	}
	r.Same("the log", []string{
		`level=verbose msg=ADD pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24 _, app/lan:net1 10.1.0.2/24 _" _` + "\n",
		`level=verbose msg=DEL pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24, app/lan:net1 10.1.0.2/24" _` + "\n",
		`level=error msg="ADD failed" pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24 _, app/lan:net1 _ failed" _ code=100 error="pod app/web: network app/lan (interface net1): ADD: plugin \"scripted\" (ADD): no carrier"` + "\n",
		`level=error msg="ADD failed" pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24 _, app/lan:net1 10.1.0.2/24 _" _ code=999 error=forbidden` + "\n",
	}, lines)
}
