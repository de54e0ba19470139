package attach_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// rig is a fake node with one living pod, pod-0, on all networks, and the namespaces
// of pod-1 and pod-2.
type rig struct {
	*attach.Engine
	t    *testing.T
	host *fakehost.Host
	log  bytes.Buffer
}

var (
	pod0 = attach.Sandbox{ContainerID: "pod-0", NetNS: "/run/netns/pod-0"}
	pod1 = attach.Sandbox{ContainerID: "pod-1", NetNS: "/run/netns/pod-1"}
	pod2 = attach.Sandbox{ContainerID: "pod-2", NetNS: "/run/netns/pod-2"}
)

// birth is when records are made.
var birth = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, host: fakehost.New(pod0.NetNS, pod1.NetNS, pod2.NetNS)}
	r.Engine = r.engine(r.host.Process())
	r.mustAdd(pod0, threeNetworks(pod0))
	r.host.Transcript()
	return r
}

// engine is the engine as another process would have it.
func (r *rig) engine(p *fakehost.Process) *attach.Engine {
	return &attach.Engine{
		Runner: p, Links: p, Ledger: p, Now: func() time.Time { return birth },
		Log: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func (r *rig) mustAdd(sb attach.Sandbox, p *plan.Plan) attach.Record {
	r.t.Helper()
	rec, err := r.Add(r.t.Context(), sb, p)
	if err != nil {
		r.t.Fatalf("ADD %s: %v", sb.ContainerID, err)
	}
	return rec
}

func (r *rig) mustDel(sb attach.Sandbox) {
	r.t.Helper()
	if _, err := r.Del(r.t.Context(), sb, "eth0"); err != nil {
		r.t.Fatalf("DEL %s: %v", sb.ContainerID, err)
	}
}

// state compares the whole host with what it was.
func (r *rig) state(want string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.host.String()); diff != "" {
		r.t.Errorf("the host (-want +got):\n%s", diff)
	}
}

// delegates compares the calls of delegates since the last look.
func (r *rig) delegates(want ...string) {
	r.t.Helper()
	same(r.t, lines(want...), r.host.Delegates())
}

func lines(all ...string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

func same[T any](t *testing.T, want, got T, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// fails compares the text and the CNI code of an error.
func fails(t *testing.T, err error, code uint, text string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", text)
	}
	same(t, fmt.Sprintf("%d %s", code, text), fmt.Sprintf("%d %s", api.CNIError(err).Code, err.Error()))
}

// network is an attachment of a fake network; more goes into its configuration.
func network(name, ifName, more string) plan.Attachment {
	c, err := cniconf.Parse([]byte(fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"fake"%s}`, name, more)))
	if err != nil {
		panic(err)
	}
	return plan.Attachment{Role: plan.Secondary, Network: "ns/" + name, Interface: ifName, Config: c, Args: []plan.Arg{{"IgnoreUnknown", "true"}}}
}

func primary() plan.Attachment {
	a := network("primary", "eth0", `,"subnets":["10.0.0.0/24","fd00::/64"],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"::0/0","gw":"fd00::1"}]`)
	a.Role, a.Network = plan.Primary, "primary"
	return a
}

func netA() plan.Attachment { return network("net-a", "net1", `,"subnets":["10.1.0.0/24"]`) }
func netB() plan.Attachment { return network("net-b", "net2", `,"subnets":["10.2.0.0/24"]`) }

func planOf(sb attach.Sandbox, all ...plan.Attachment) *plan.Plan {
	return &plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "ns", Name: sb.ContainerID, UID: "u-" + sb.ContainerID}, Attachments: all}
}

// threeNetworks is a primary network and two others, the first of which gets the
// default route.
func threeNetworks(sb attach.Sandbox) *plan.Plan {
	p := planOf(sb, primary(), netA(), netB())
	for i := range p.Attachments {
		p.Attachments[i].Routes.DropV4 = true
	}
	p.Attachments[1].Routes.Gateways = []netip.Addr{netip.MustParseAddr("10.1.0.1")}
	return p
}

// compact makes records comparable: no times, and JSON as text.
var compact = cmp.Options{
	cmp.Transformer("config", func(c cniconf.Config) string { return string(c.Bytes()) }),
	cmp.Transformer("raw", func(r json.RawMessage) string { return string(r) }),
	cmp.Transformer("addr", netip.Addr.String),
}

// edited is a runner whose results are other than those of the fake networks.
type edited struct {
	*fakehost.Process
	edit func(a attach.Attachment, result string) string
}

func (e *edited) Add(ctx context.Context, a attach.Attachment) (json.RawMessage, error) {
	result, err := e.Process.Add(ctx, a)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(e.edit(a, string(result))), nil
}
