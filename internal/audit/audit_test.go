package audit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

var (
	at  = time.Date(2026, 12, 2, 12, 0, 0, 0, time.UTC)
	web = plan.Pod{Namespace: "app", Name: "web", UID: "u1"}
)

// trace is an orphan's, an hour old, of a sandbox c1 of the pod web.
func trace(change func(*Trace)) Trace {
	c, err := cniconf.Parse([]byte(`{"name":"lan","type":"bridge"}`))
	if err != nil {
		panic(err)
	}
	t := Trace{Gone: true, Record: attach.Record{
		State: attach.Attached, Created: at.Add(-time.Hour), Sandbox: attach.Sandbox{ContainerID: "c1", NetNS: "/run/netns/c1"},
		Plan: plan.Plan{Pod: web, Attachments: []plan.Attachment{{Role: plan.Primary, Network: "lan", Interface: "eth0", Config: c}}},
		Outcomes: []attach.Outcome{{Result: json.RawMessage(
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.0.0.7/24","interface":0}]}`)}},
	}}
	if change != nil {
		change(&t)
	}
	return t
}

func pod(change func(*gather.Pod)) gather.Pod {
	p := gather.Pod{Subject: plan.Subject{Pod: web, Annotations: map[string]string{netspec.AnnotationNetworks: "lan"}}}
	if change != nil {
		change(&p)
	}
	return p
}

func device(id string) func(*Trace) {
	return func(t *Trace) { t.Plan.Attachments[0].DeviceID = id }
}

func TestR15Orphans(t *testing.T) {
	nobody := Evidence{At: at, Pods: Pods{}, Busy: map[string]bool{"vf7": true}}
	with := func(e Evidence, change func(*Evidence)) Evidence { change(&e); return e }
	for name, c := range map[string]struct {
		evidence Evidence
		trace    Trace
		want     bool
	}{
		"pod and namespace are gone":               {nobody, trace(nil), true},
		"v4 attached it":                           {nobody, trace(func(t *Trace) { t.Origin = attach.FromV4 }), true},
		"a result of libcni":                       {nobody, trace(func(t *Trace) { t.Origin = attach.Cache }), true},
		"its namespace may be there":               {nobody, trace(func(t *Trace) { t.Gone = false }), false},
		"it is too young":                          {nobody, trace(func(t *Trace) { t.Created = at.Add(-Grace + 1) }), false},
		"it is made while the look runs":           {nobody, trace(func(t *Trace) { t.Created = at.Add(time.Minute) }), false},
		"its pod is there":                         {with(nobody, func(e *Evidence) { e.Pods = ByName([]gather.Pod{pod(nil)}) }), trace(nil), false},
		"another pod has its name":                 {with(nobody, func(e *Evidence) { e.Pods = ByName([]gather.Pod{pod(func(p *gather.Pod) { p.UID = "u2" })}) }), trace(nil), true},
		"a runtime that told no UID, and the name": {with(nobody, func(e *Evidence) { e.Pods = ByName([]gather.Pod{pod(nil)}) }), trace(func(t *Trace) { t.Plan.Pod.UID = "" }), false},
		"a static pod's mirror": {with(nobody, func(e *Evidence) {
			e.Pods = ByName([]gather.Pod{pod(func(p *gather.Pod) { p.UID, p.Static = "u2", true })})
		}), trace(nil), false},
		"a device that another has":   {nobody, trace(device("vf7")), false},
		"a device that nobody has":    {nobody, trace(device("vf8")), true},
		"a device that v4 gave it":    {nobody, trace(func(t *Trace) { device("vf8")(t); t.Origin = attach.FromV4 }), false},
		"no pod is named":             {nobody, trace(func(t *Trace) { t.Plan.Pod = plan.Pod{} }), false},
		"a runtime that knows nobody": {with(nobody, func(e *Evidence) { e.Runtime = map[string]bool{} }), trace(func(t *Trace) { t.Plan.Pod = plan.Pod{} }), false},
		"v4's, whose namespace is not told": {with(nobody, func(e *Evidence) { e.Runtime = map[string]bool{"c2": true} }), trace(func(t *Trace) {
			t.Origin, t.Sandbox.NetNS, t.Gone = attach.FromV4, "", true
		}), false},
		"no pod, and no sandbox either":       {with(nobody, func(e *Evidence) { e.Runtime = map[string]bool{"c2": true} }), trace(func(t *Trace) { t.Plan.Pod = plan.Pod{} }), true},
		"no pod, but a sandbox":               {with(nobody, func(e *Evidence) { e.Runtime = map[string]bool{"c1": true} }), trace(func(t *Trace) { t.Plan.Pod = plan.Pod{} }), false},
		"no namespace is named":               {nobody, trace(func(t *Trace) { t.Sandbox.NetNS, t.Gone = "", false }), false},
		"no namespace, and no sandbox either": {with(nobody, func(e *Evidence) { e.Runtime = map[string]bool{"c2": true} }), trace(func(t *Trace) { t.Sandbox.NetNS, t.Gone = "", false }), true},
	} {
		if got := c.evidence.Orphan(c.trace); got != c.want {
			t.Errorf("%s: an orphan is %v", name, got)
		}
	}
}

func TestI5_DevicesOfASandbox(t *testing.T) {
	c, err := cniconf.Parse([]byte(`{"name":"n","plugins":[{"type":"sriov","deviceID":"vf1"},{"type":"tuning","deviceID":7},{"type":"x","deviceID":"vf2"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	rec := trace(device("vf1")).Record
	rec.Plan.Attachments[0].Config = c
	rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{DeviceID: "vf3", Config: trace(nil).Plan.Attachments[0].Config})
	rec.Outcomes = append(rec.Outcomes, attach.Outcome{Detached: true})
	if diff := cmp.Diff([]string{"vf1", "vf2"}, rec.Devices()); diff != "" {
		t.Error(diff)
	}
}

func TestR1Strays(t *testing.T) {
	running := Life{Phase: Running, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}
	before := Life{Phase: Running, IPs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.7")}}
	claims := func(ip string) func(*gather.Pod) {
		return func(p *gather.Pod) {
			p.Annotations[netspec.AnnotationStatus] = fmt.Sprintf(`[{"name":"lan","interface":"eth0","ips":[%q],"default":true},{"name":"b","ips":["10.0.0.9"]}]`, ip)
		}
	}
	dead := []Trace{trace(nil)}
	for name, c := range map[string]struct {
		pod    gather.Pod
		life   Life
		dead   []Trace
		waited time.Duration
		want   bool
	}{
		"nothing knows it":                         {pod(nil), running, nil, 0, true},
		"an earlier sandbox, with another address": {pod(claims("10.0.0.7")), running, dead, 0, true},
		"its status names its address":             {pod(claims("10.0.0.9")), running, nil, time.Hour, false},
		"told of before a restart": {pod(func(p *gather.Pod) {
			p.Annotations[netspec.AnnotationStatus] = netspec.FormatStatus(TrueStatus(running, "lan", "eth0"))
		}), running, nil, 0, true},
		"its status cannot be read":                    {pod(func(p *gather.Pod) { p.Annotations[netspec.AnnotationStatus] = "{" }), running, nil, 0, true},
		"the API has not seen the reboot":              {pod(claims("10.0.0.7")), before, dead, Settled - 1, false},
		"the API goes on saying so":                    {pod(claims("10.0.0.7")), before, dead, Settled, true},
		"not running yet":                              {pod(nil), Life{Phase: Waiting, IPs: running.IPs}, nil, time.Hour, false},
		"the node's network, or ended":                 {pod(nil), Life{Phase: Exempt, IPs: running.IPs}, nil, time.Hour, false},
		"without an address yet":                       {pod(nil), Life{Phase: Running}, nil, time.Hour, false},
		"being deleted":                                {pod(func(p *gather.Pod) { p.Deleting = true }), running, nil, time.Hour, false},
		"an earlier sandbox of v4, the same addresses": {pod(nil), before, []Trace{trace(func(t *Trace) { t.Origin = attach.FromV4; t.Plan.Attachments[0].Role = plan.Secondary })}, 0, false},
	} {
		if got := Stray(c.pod, c.life, c.dead, c.waited); got != c.want {
			t.Errorf("%s: a stray is %v", name, got)
		}
	}
}

func TestR15WhoseTraceItIs(t *testing.T) {
	for name, c := range map[string]struct {
		pod       gather.Pod
		trace     Trace
		of, known bool
	}{
		"its sandbox":         {pod(nil), trace(func(t *Trace) { t.Gone = false }), true, true},
		"an earlier one":      {pod(nil), trace(nil), true, false},
		"another pod's":       {pod(func(p *gather.Pod) { p.UID = "u2" }), trace(func(t *Trace) { t.Gone = false }), false, false},
		"nobody's":            {pod(func(p *gather.Pod) { p.Pod = plan.Pod{} }), trace(func(t *Trace) { t.Gone = false; t.Plan.Pod = plan.Pod{} }), false, false},
		"an ADD that goes on": {pod(nil), trace(func(t *Trace) { t.Gone, t.State = false, attach.Intent }), true, true},
	} {
		if of, known := Of(c.pod, c.trace), Known(c.pod, c.trace); of != c.of || known != c.known {
			t.Errorf("%s: its own is %v, known is %v", name, of, known)
		}
	}
	if Selects(pod(func(p *gather.Pod) { p.Annotations = nil })) || !Selects(pod(nil)) ||
		!Selects(pod(func(p *gather.Pod) { p.Annotations = map[string]string{netspec.AnnotationDefaultNetwork: "x"} })) {
		t.Error("it is not seen whether a pod selects networks")
	}
}

func TestI5_LateAttachments(t *testing.T) {
	a := func(role plan.Role, network string, change func(*plan.Attachment)) plan.Attachment {
		x := plan.Attachment{Role: role, Network: network}
		if change != nil {
			change(&x)
		}
		return x
	}
	late, refused := Late(plan.Plan{Attachments: []plan.Attachment{
		a(plan.Primary, "p", nil), a(plan.Secondary, "s", func(x *plan.Attachment) { x.Routes.DropV4 = true }), a(plan.Default, "d", nil), a(plan.Auxiliary, "x", nil),
		a(plan.Secondary, "vf", func(x *plan.Attachment) { x.DeviceID = "vf1" }), a(plan.Secondary, "pool", func(x *plan.Attachment) { x.Resource = "v/r" }),
		a(plan.Secondary, "own", func(x *plan.Attachment) { x.Routes.Own = true }),
		a(plan.Secondary, "gw", func(x *plan.Attachment) { x.Routes.Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }),
	}})
	var names []string
	for _, x := range late {
		names = append(names, x.Network)
	}
	if diff := cmp.Diff([]string{"s", "d"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"vf (it has a device)", "pool (it has a device)", "own (it has the default route)", "gw (it has the default route)"}, refused); diff != "" {
		t.Error(diff)
	}
	status := netspec.FormatStatus(TrueStatus(Life{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}, "cluster", "eth0"))
	if want := "[{\n    \"name\": \"cluster\",\n    \"interface\": \"eth0\",\n    \"ips\": [\n        \"10.0.0.9\"\n    ],\n    \"default\": true,\n    \"dns\": {}\n}]"; status != want {
		t.Errorf("got %s", status)
	}
}
