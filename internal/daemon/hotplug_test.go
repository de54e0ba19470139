package daemon

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/hotplug"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Where the daemon may not act on the host, it says in one line why and what would be right.
func TestI5_HotplugIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		keys map[string]any
		want string
	}{
		"no host root":          {map[string]any{}, `the daemon may not act on the host, for the key "chrootDir" is not set: `},
		"the root is elsewhere": {map[string]any{"chrootDir": "/nonexistent"}, `the host's root is not where the key "chrootDir" says (stat /nonexistent: no such file or directory): `},
		"it may":                {map[string]any{"chrootDir": "/"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.keys["hotplug"] = true
			r := prepare(t, c.keys)
			got := r.d.mayNotAct()
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			r.Same("pods may start without optional networks", c.want == "", r.d.attachesLate())
			cfg, err := r.d.planConfig(t.Context(), json.RawMessage(`{"hotplug":false}`))
			r.Must(err)
			r.Same("what is planned with", c.want == "", cfg.Hotplug)
		})
	}
	r := prepare(t, map[string]any{"chrootDir": "/"})
	cfg, err := r.d.planConfig(t.Context(), json.RawMessage(`{"hotplug":true}`))
	r.Must(err)
	r.Same("a caller cannot turn it on", false, cfg.Hotplug)
}

func TestI5_Capable(t *testing.T) {
	const sysAdmin, none = 21, 63
	if !capable(sysAdmin) || capable(sysAdmin, none) {
		t.Errorf("got %v and %v of a process that is root", capable(sysAdmin), capable(sysAdmin, none))
	}
}

// The rules of a configuration that an administrator wrote hold for running pods too,
// whatever form it has.
func TestI5_HotplugUnderTheStandingRules(t *testing.T) {
	for name, text := range map[string]string{
		"conf":     `{"cniVersion":"1.0.0","name":"m","type":"multus-shim","namespaceIsolation":true}`,
		"conflist": `{"cniVersion":"1.0.0","name":"m","plugins":[{"type":"multus-shim","namespaceIsolation":true}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := prepare(t, map[string]any{"chrootDir": "/", "hotplug": true})
			r.write("fixed.conf", text)
			r.d.Config.MultusConfigFile = r.path("fixed.conf")
			rec := attach.Record{Sandbox: attach.Sandbox{ContainerID: "c1"}, Plan: plan.Plan{Pod: plan.Pod{Namespace: "app", Name: "web", UID: "u"}}}
			_, err := r.d.planJoining(t.Context(), rec, hotplug.Joining{Selection: netspec.Selection{Namespace: "infra", Name: "lan", Interface: "x"}, Element: 1})
			if err == nil || !strings.Contains(err.Error(), `namespace isolation keeps pods of "app" from networks of "infra"`) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What the runtime told of the pod at its ADD, plugins of running pods are told too.
func TestI5_HotplugKeepsTheRuntimesArguments(t *testing.T) {
	r := prepare(t, map[string]any{"chrootDir": "/", "hotplug": true})
	r.set(func(c *fakeCluster) { c.nads["app/lan"] = `{"cniVersion":"1.0.0","name":"lan","type":"bridge"}` })
	rec := attach.Record{Sandbox: attach.Sandbox{ContainerID: "c1"}, Plan: plan.Plan{
		Pod:         plan.Pod{Namespace: "app", Name: "web", UID: "u"},
		Attachments: []plan.Attachment{{Role: plan.Primary, Args: []plan.Arg{{"IgnoreUnknown", "true"}, {"K8S_POD_NAME", "web"}, {"X", "a=b"}}}},
	}}
	p, err := r.d.planJoining(t.Context(), rec, hotplug.Joining{Selection: netspec.Selection{Namespace: "app", Name: "lan", Interface: "x"}, Element: 1})
	r.Must(err)
	r.Same("CNI_ARGS", []plan.Arg{
		{"IgnoreUnknown", "true"}, {"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_INFRA_CONTAINER_ID", "c1"}, {"K8S_POD_UID", "u"}, {"X", "a=b"},
	}, p.Attachments[0].Args)
}

// What the publisher writes keeps what the callers of /delegate wrote, and the primary
// network of a sandbox that got its networks late.
func TestC1_18CatchUpKeepsWhatOthersMade(t *testing.T) {
	for name, c := range map[string]struct {
		role plan.Role
		late bool
		want []string
	}{
		"plugged": {plan.Plugged, false, []string{"primary@eth0", "app/hot@hot0"}},
		"late":    {plan.Secondary, true, []string{"cluster@eth0", "app/lan@hot0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := publish(t)
				p.put("web", "u", "")
				p.set(func(f *fakeCluster) {
					f.pods["app/web"].Annotations[netspec.AnnotationStatus] = `[{"name":"app/hot","interface":"hot0","dns":{}},` +
						`{"name":"app/gone","interface":"net9","dns":{}},{"name":"cluster","interface":"eth0","default":true,"dns":{}}]`
				})
				p.record("c1", "web", "u", time.Hour, func(rec *attach.Record) {
					conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"hot","type":"bridge"}`))
					p.Must(err)
					if c.late {
						rec.Plan.Attachments, rec.Outcomes = nil, nil
					}
					rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Role: c.role, Network: "app/lan", Interface: "hot0", Config: conf})
					rec.Outcomes = append(rec.Outcomes, attach.Outcome{Result: json.RawMessage(`{"cniVersion":"1.0.0","interfaces":[{"name":"hot0","sandbox":"/n"}]}`)})
				})
				time.Sleep(time.Second)
				synctest.Wait()
				var names []string
				for _, line := range p.heard() {
					_, text, _ := strings.Cut(line, ": ")
					entries, err := netspec.ParseStatus(text)
					p.Must(err)
					for _, e := range entries {
						names = append(names, e.Name+"@"+e.Interface)
					}
				}
				p.Same("the status", c.want, names)
			})
		})
	}
}

// A daemon whose installation may not act says so in its log, once, at its start.
func TestI5_HotplugIsRefusedInTheLog(t *testing.T) {
	var log strings.Builder
	cfg, _, err := config.Parse([]byte(`{"hotplug":true,"cniDir":"` + t.TempDir() + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Config: cfg, Cluster: newCluster(), Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg="key \"hotplug\" has no effect: the networks of running pods do not change" error="the daemon may not act on the host`) {
		t.Errorf("the log:\n%s", got)
	}
}
