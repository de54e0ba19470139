package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// program is the name under which the test binary is the plugin under test. Under the
// name delegate it is a delegate.
const (
	program  = "multus-shim"
	delegate = "scripted"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case program:
		os.Exit(Command(context.Background(), program, "multus-shim: version:test", Plugin{
			Planner: Remote, Environ: os.Environ(), BootID: ledger.BootID(),
			Logger: func(*config.Config) (*slog.Logger, io.Closer) {
				return slog.New(slog.DiscardHandler), io.NopCloser(nil)
			},
		}))
	case delegate:
		os.Exit(actAsDelegate())
	default:
		os.Exit(m.Run())
	}
}

// object is JSON in a test.
type object = map[string]any

// seen is a line of the delegates' log.
type seen struct {
	Verb, Network, IfName, Args, Mark string
	Prev                              json.RawMessage `json:",omitempty"`
}

// actAsDelegate answers as the configuration's "answers" say, by verb: an error where
// the answer has a code. It answers ADD with one address where they say nothing.
func actAsDelegate() int {
	var conf struct {
		CNIVersion, Name, Log, Say string
		PrevResult                 json.RawMessage
		Answers                    map[string]json.RawMessage
	}
	if err := json.NewDecoder(os.Stdin).Decode(&conf); err != nil {
		panic(err)
	}
	verb := os.Getenv("CNI_COMMAND")
	line, err := json.Marshal(seen{verb, conf.Name, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_ARGS"), os.Getenv("MARK"), conf.PrevResult})
	if err != nil {
		panic(err)
	}
	log, err := os.OpenFile(conf.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	log.Write(append(line, '\n'))
	os.Stderr.WriteString(conf.Say)
	answer := conf.Answers[verb]
	if answer == nil && verb == "ADD" {
		answer = cniconf.Quote(result(conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS")))
	}
	os.Stdout.Write(answer)
	var failure types.Error
	if json.Unmarshal(answer, &failure) == nil && failure.Code != 0 {
		return 1
	}
	return 0
}

// result is an ADD's result with one address, in a version.
func result(version, ifName, netNS string) object {
	address := object{"address": "10.1.0.2/24"}
	if strings.HasPrefix(version, "0.") {
		address["version"] = "4"
	}
	return object{"cniVersion": version, "interfaces": []any{object{"name": ifName, "sandbox": netNS}}, "ips": []any{address}}
}

// planner answers as its functions say, and remembers what it was asked and told.
type planner struct {
	plan      func(context.Context, api.PlanRequest) (*plan.Plan, error)
	reportErr error

	asked []api.PlanRequest
	told  []api.Report
}

func (p *planner) Plan(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
	p.asked = append(p.asked, req)
	return p.plan(ctx, req)
}

func (p *planner) Report(_ context.Context, r api.Report) error {
	r.Millis = 0
	for i := range r.Attachments {
		r.Attachments[i].Millis = 0
	}
	p.told = append(p.told, r)
	return p.reportErr
}

// away is a daemon that is not there.
func away(context.Context, api.PlanRequest) (*plan.Plan, error) {
	return nil, api.WithCode(types.ErrTryAgainLater, errors.New("the daemon is away"))
}

// buffer is a log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// rig is a node with one sandbox, and the plugin with a planner of the test's.
type rig struct {
	check.T
	dir     string
	planner *planner // away at first
	plugin  *Plugin
	log     buffer
	stdin   object // a plain pod's
	inv     Invocation
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: check.T{T: t}, dir: t.TempDir(), planner: &planner{plan: away}}
	self, err := os.Executable()
	r.Must(err)
	r.Must(os.Mkdir(r.path("bin"), 0o755))
	r.Must(os.Symlink(self, r.path("bin/"+delegate)))
	r.Must(os.Symlink(self, r.path(program)))
	r.Must(os.Mkdir(r.path("net.d"), 0o755))
	ns, err := netns.Create(r.path("ns"), "a")
	r.Must(err)
	t.Cleanup(func() { r.Must(netns.Delete(ns)) })
	r.writeConf("net.d/10-primary.conf", r.network("primary", nil))
	r.plugin = &Plugin{
		Planner: func(*config.Config, *slog.Logger) (Planner, func(), error) { return r.planner, func() {}, nil },
		Logger: func(*config.Config) (*slog.Logger, io.Closer) {
			return slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), io.NopCloser(nil)
		},
		Environ: []string{"MARK=runtime", "GORACE=atexit_sleep_ms=0"}, BootID: "boot",
	}
	r.stdin = object{
		"cniVersion": "1.0.0", "name": "multus-cni-network", "type": program, "cniDir": r.path("state"), "binDir": r.path("bin"),
		"clusterNetwork": "/in/the/daemon/10-primary.conf",
		"host":           object{"primaryFile": r.path("net.d/10-primary.conf"), "trusted": true},
		"runtimeConfig":  delivered(object{}),
	}
	r.inv = Invocation{
		ContainerID: "c1", NetNS: ns, Interface: "eth0", Path: "/opt/cni/bin",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=web;K8S_POD_UID=u",
	}
	return r
}

// delivered is a runtimeConfig with the pod's annotations.
func delivered(annotations any) object {
	return object{config.PodAnnotationsCapability: annotations}
}

func selecting(networks string) object {
	return delivered(object{netspec.AnnotationNetworks: networks})
}

// network is a network of the scripted delegate.
func (r *rig) network(name string, answers object) object {
	return object{"cniVersion": "1.0.0", "name": name, "type": delegate, "log": r.path("log"), "answers": answers}
}

// with is a plan of the daemon's: the primary network and the pod's.
func (r *rig) with(names ...string) func(context.Context, api.PlanRequest) (*plan.Plan, error) {
	return func(context.Context, api.PlanRequest) (*plan.Plan, error) {
		p := &plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "app", Name: "web", UID: "u"}, Env: []string{"MARK=daemon"}}
		for i, name := range append([]string{"primary"}, names...) {
			a := plan.Attachment{Role: plan.Secondary, Network: "app/" + name, Interface: "net" + string(rune('0'+i)), Config: r.parse(r.network(name, nil)), Args: []plan.Arg{{"K8S_POD_NAME", "web"}}}
			if i == 0 {
				a.Role, a.Network, a.Interface = plan.Primary, name, "eth0"
			}
			p.Attachments = append(p.Attachments, a)
		}
		return p, nil
	}
}

func (r *rig) parse(conf object) cniconf.Config {
	r.Helper()
	c, err := cniconf.Parse(cniconf.Quote(conf))
	r.Must(err)
	return c
}

// call is the invocation with keys of stdin changed; nil removes one.
func (r *rig) call(changes object) Invocation {
	stdin := maps.Clone(r.stdin)
	for key, value := range changes {
		stdin[key] = value
		if value == nil {
			delete(stdin, key)
		}
	}
	inv := r.inv
	inv.Stdin = cniconf.Quote(stdin)
	return inv
}

func (r *rig) add(changes object) (types.Result, error) {
	return r.plugin.Add(r.Context(), r.call(changes))
}

// ran are the delegates' calls since the last look, as "VERB network".
func (r *rig) ran() []string {
	r.Helper()
	var all []string
	for _, s := range r.calls() {
		all = append(all, s.Verb+" "+s.Network)
	}
	return all
}

func (r *rig) calls() []seen {
	r.Helper()
	raw, err := os.ReadFile(r.path("log"))
	if os.IsNotExist(err) {
		return nil
	}
	r.Must(err)
	r.Must(os.Remove(r.path("log")))
	var all []seen
	for line := range strings.Lines(string(raw)) {
		var s seen
		r.Must(json.Unmarshal([]byte(line), &s))
		all = append(all, s)
	}
	return all
}

func (r *rig) records() *ledger.Ledger { return ledger.New(r.path("state"), "boot") }

func (r *rig) recorded() []string {
	r.Helper()
	all, err := r.records().All()
	r.Must(err)
	var ids []string
	for _, l := range all {
		ids = append(ids, l.ContainerID)
	}
	return ids
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, content string) {
	r.Helper()
	r.Must(os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	r.Must(os.WriteFile(r.path(name), []byte(content), 0o600))
}

func (r *rig) writeConf(name string, conf object) { r.write(name, string(cniconf.Quote(conf))) }
