package shim

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// nobody is a planner that must not be asked.
func (r *rig) nobody() {
	r.Helper()
	if len(r.planner.asked) > 0 {
		r.Errorf("the planner was asked: %+v", r.planner.asked)
	}
	r.planner.asked = nil
}

// attached attaches the sandbox to the primary network and one more.
func (r *rig) attached() {
	r.Helper()
	r.planner.plan = r.with("lan")
	_, err := r.add(nil)
	r.Must(err)
	r.ran()
	r.planner.plan, r.planner.asked, r.planner.told = away, nil, nil
}

// TestR2DelWithoutThePlanner: what the ledger says is given back, in reverse order,
// though nothing of the node's configuration is left.
func TestR2DelWithoutThePlanner(t *testing.T) {
	r := newRig(t)
	r.attached()
	r.Must(os.RemoveAll(r.path("net.d")))
	r.Must(r.plugin.Del(t.Context(), r.call(nil)))
	r.Same("calls", []string{"DEL lan", "DEL primary"}, r.ran())
	r.Same("recorded", []string(nil), r.recorded())
	r.nobody()
	want := r.report("DEL", eth0("primary"), net1("app/lan"))
	want.NoWait = true
	r.Same("reports", []api.Report{want}, r.planner.told)
	r.Must(r.plugin.Del(t.Context(), r.call(nil)))
}

// TestR2DelWithoutARecord: the sandbox may be older than Multus on this node. The
// primary network is asked, with what the runtime knows, and has no say.
func TestR2DelWithoutARecord(t *testing.T) {
	prev := func(version string) json.RawMessage { return cniconf.Quote(result(version, "eth0", "/ns")) }
	for name, c := range map[string]struct {
		version string // the primary network's
		answers object
		prev    json.RawMessage
		gone    bool
		want    []seen
	}{
		"it succeeds":       {version: "1.0.0", prev: prev("1.0.0"), want: []seen{{Prev: prev("1.0.0")}}},
		"it fails":          {version: "1.0.0", answers: object{"DEL": object{"code": 7, "msg": "no"}}, want: []seen{{}}},
		"no prevResult":     {version: "1.0.0", want: []seen{{}}},
		"another version":   {version: "0.4.0", prev: prev("1.0.0"), want: []seen{{Prev: json.RawMessage(`{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],"ips":[{"version":"4","address":"10.1.0.2/24"}],"dns":{}}`)}}},
		"one without":       {version: "0.3.1", prev: prev("1.0.0"), want: []seen{{}}},
		"nothing is known ": {gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			conf := r.network("primary", c.answers)
			conf["cniVersion"] = c.version
			r.writeConf("net.d/10-primary.conf", conf)
			if c.gone {
				r.Must(os.Remove(r.path("net.d/10-primary.conf")))
			}
			changes := object{"prevResult": c.prev}
			if c.prev == nil {
				changes = nil
			}
			r.Must(r.plugin.Del(t.Context(), r.call(changes)))
			for i := range c.want {
				c.want[i].Verb, c.want[i].Network, c.want[i].IfName, c.want[i].Mark = "DEL", "primary", "eth0", "runtime"
				c.want[i].Args = "IgnoreUnknown=true;K8S_POD_NAMESPACE=app;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u"
			}
			r.Same("calls", c.want, r.calls())
			r.nobody()
			r.Same("reports", []api.Report(nil), r.planner.told)
		})
	}
}

// TestT17DelFailureKeepsItsCode, and the record: the retry repeats only what failed.
func TestT17DelFailureKeepsItsCode(t *testing.T) {
	r := newRig(t)
	r.writeConf("net.d/10-primary.conf", r.network("primary", object{"DEL": object{"code": 112, "msg": "address store down"}}))
	_, err := r.add(nil)
	r.Must(err)
	r.planner.told = nil
	for range 2 {
		const line = `pod app/web: network primary (interface eth0): DEL: plugin "scripted" (DEL): address store down`
		r.Fails(r.plugin.Del(t.Context(), r.call(nil)), 112, line)
		r.Same("recorded", []string{"c1"}, r.recorded())
		want := r.report("DEL", eth0("primary"))
		want.NoWait, want.Error = true, types.NewError(112, line, "")
		r.Same("reports", []api.Report{want}, r.planner.told)
		r.planner.told = nil
	}
}

// TestR18CheckWithoutARecord asks the primary network, and its word counts.
func TestR18CheckWithoutARecord(t *testing.T) {
	r := newRig(t)
	prev := cniconf.Quote(result("1.0.0", "eth0", "/ns"))
	r.Must(r.plugin.Check(t.Context(), r.call(object{"prevResult": prev})))
	calls := r.calls()
	if len(calls) != 1 || calls[0].Verb != "CHECK" || string(calls[0].Prev) != string(prev) {
		t.Errorf("got %+v", calls)
	}
	conf := r.network("primary", object{"CHECK": object{"code": 104, "msg": "the address is gone"}})
	conf["cniVersion"] = "0.4.0" // the runtime's result is converted
	r.writeConf("net.d/10-primary.conf", conf)
	r.Fails(r.plugin.Check(t.Context(), r.call(object{"prevResult": prev})), 104, "the address is gone")
	r.Must(os.Remove(r.path("net.d/10-primary.conf")))
	r.Fails(r.plugin.Check(t.Context(), r.call(object{"prevResult": prev})), types.ErrTryAgainLater, "cannot be read")
	r.nobody()
}

// TestR18CheckOfARecord compares what is recorded.
func TestR18CheckOfARecord(t *testing.T) {
	r := newRig(t)
	r.attached() // no delegate of this test makes an interface, so there is nothing to compare
	r.Must(r.plugin.Check(t.Context(), r.call(nil)))
	r.Same("calls", []string{"CHECK primary"}, r.ran())
	r.Must(r.plugin.Check(t.Context(), r.call(object{"checkDelegates": true})))
	r.Same("calls", []string{"CHECK primary", "CHECK lan"}, r.ran())
	r.nobody()
}

// TestR17Status answers from the node alone.
func TestR17Status(t *testing.T) {
	type outcome struct {
		Code uint
		Ran  []string
	}
	newer := func(answers object) func(*rig) {
		return func(r *rig) {
			conf := r.network("primary", answers)
			conf["cniVersion"] = "1.1.0"
			r.writeConf("net.d/10-primary.conf", conf)
		}
	}
	missing := object{"readinessindicatorfile": "/not/there"}
	for name, c := range map[string]struct {
		given   func(*rig)
		changes object
		want    outcome
	}{
		"it is asked":               {given: newer(nil), want: outcome{Ran: []string{"STATUS primary"}}},
		"it is not available":       {given: newer(object{"STATUS": object{"code": 51, "msg": "limited"}}), want: outcome{51, []string{"STATUS primary"}}},
		"it is too old to be asked": {given: func(*rig) {}},
		"it is gone":                {given: func(r *rig) { r.Must(os.RemoveAll(r.path("net.d"))) }, want: outcome{Code: types.ErrPluginNotAvailable}},
		"the indicator is missing":  {given: newer(nil), changes: missing, want: outcome{Code: types.ErrPluginNotAvailable}},
		"it is in the API":          {given: func(*rig) {}, changes: object{"host": nil, "clusterNetwork": "primary"}},
		"it is in the API, and the indicator is missing": {
			given: func(*rig) {}, want: outcome{Code: types.ErrPluginNotAvailable},
			changes: object{"host": nil, "clusterNetwork": "primary", "readinessindicatorfile": "/not/there"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.given(r)
			r.stdin["runtimeConfig"] = nil
			r.inv = Invocation{Path: r.inv.Path}
			var got outcome
			if err := r.plugin.Status(t.Context(), r.call(c.changes)); err != nil {
				got.Code = api.CNIError(err).Code
			}
			got.Ran = r.ran()
			r.Same("outcome", c.want, got)
			r.nobody()
			r.Same("reports", []api.Report(nil), r.planner.told)
		})
	}
}

// TestR16SweepOnlyInTime: an overdue clean-up rides on a STATUS that has a second left for
// it, whatever becomes of it; with less, its delegates would be ended half-way.
func TestR16SweepOnlyInTime(t *testing.T) {
	for name, c := range map[string]struct {
		left    time.Duration
		answers object
		ran     []string
		stays   []string
	}{
		"in time":          {left: time.Hour, ran: []string{"DEL lan"}},
		"in vain":          {left: time.Hour, answers: object{"DEL": object{"code": 100, "msg": "store down"}}, ran: []string{"DEL lan"}, stays: []string{"c2"}},
		"too late for one": {left: 900 * time.Millisecond, stays: []string{"c2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.inv = Invocation{Path: r.inv.Path}
			r.stdin["runtimeConfig"] = nil
			rec := attach.Record{State: attach.Detaching, Created: time.Now(), Sandbox: attach.Sandbox{ContainerID: "c2", NetNS: "/gone"}, Outcomes: make([]attach.Outcome, 1)}
			rec.Plan = plan.Plan{Version: plan.Version, Attachments: []plan.Attachment{{Role: plan.Secondary, Network: "app/lan", Interface: "net1", Config: r.parse(r.network("lan", c.answers))}}}
			r.Must(r.records().Save(rec, false))
			lock := r.path("state/.lock/c2")
			r.write("state/.lock/c2", "")
			long := time.Now().Add(-time.Hour)
			r.Must(os.Chtimes(lock, long, long))

			ctx, cancel := context.WithTimeout(t.Context(), c.left)
			defer cancel()
			r.Must(r.plugin.Status(ctx, r.call(nil)))
			r.Same("calls", c.ran, r.ran())
			r.Same("recorded", c.stays, r.recorded())
		})
	}
}

// TestT25GC frees what the runtime does not name; without a list nothing is freed.
func TestT25GC(t *testing.T) {
	const key = "cni.dev/valid-attachments"
	named := []any{object{"containerID": "c1", "ifname": "eth0"}}
	for name, c := range map[string]struct {
		list object
		code uint
		ran  []string
	}{
		"no list":              {list: nil, code: types.ErrDecodingFailure},
		"another key":          {list: object{"cni.dev/attachments": named}, code: types.ErrDecodingFailure},
		"no list of the kind":  {list: object{key: object{}}, code: types.ErrDecodingFailure},
		"the sandbox is named": {list: object{key: named}},
		"none is named":        {list: object{key: []any{}}, ran: []string{"DEL lan", "DEL primary"}},
		// libcni writes an empty list like this.
		"null": {list: object{key: json.RawMessage("null")}, ran: []string{"DEL lan", "DEL primary"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.attached()
			rec, err := r.records().Load("c1")
			r.Must(err)
			rec.Created = rec.Created.Add(-time.Hour)
			r.Must(r.records().Save(rec, false))
			stdin := maps.Clone(r.stdin)
			maps.Copy(stdin, c.list)
			err = r.plugin.GC(t.Context(), Invocation{Path: r.inv.Path, Stdin: cniconf.Quote(stdin)})
			if c.code != 0 {
				r.Fails(err, c.code, key)
			} else {
				r.Must(err)
				r.Same("reports", []api.Report{{Protocol: api.Protocol, Verb: "GC", NoWait: true}}, r.planner.told)
			}
			r.Same("calls", c.ran, r.ran())
			r.nobody()
		})
	}
}
