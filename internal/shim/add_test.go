package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// eth0 is the report and the status of the primary network.
func eth0(network string) api.Attachment {
	return api.Attachment{Network: network, Interface: "eth0", Plugins: []string{delegate}, Addresses: []string{"10.1.0.2/24"}, Status: []json.RawMessage{
		json.RawMessage(`{"name":"` + network + `","interface":"eth0","ips":["10.1.0.2"],"default":true,"dns":{}}`),
	}}
}

func net1(network string) api.Attachment {
	return api.Attachment{Network: network, Interface: "net1", Plugins: []string{delegate}, Addresses: []string{"10.1.0.2/24"}, Status: []json.RawMessage{
		json.RawMessage(`{"name":"` + network + `","interface":"net1","ips":["10.1.0.2"],"dns":{}}`),
	}}
}

func (r *rig) report(verb string, attachments ...api.Attachment) api.Report {
	return api.Report{Protocol: api.Protocol, Verb: verb, ContainerID: "c1", NetNS: r.inv.NetNS, Pod: api.Pod{Namespace: "app", Name: "web", UID: "u"}, Attachments: attachments}
}

// TestR3PlainPodAlone: a daemon that is away, or says nothing for 50 ms.
func TestR3PlainPodAlone(t *testing.T) {
	for name, answer := range map[string]func(context.Context, api.PlanRequest) (*plan.Plan, error){
		"away": away,
		"silent": func(ctx context.Context, _ api.PlanRequest) (*plan.Plan, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.planner.plan = func(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > 50*time.Millisecond || !req.Plain {
					t.Errorf("asked until %v, plain %v", end, req.Plain)
				}
				return answer(ctx, req)
			}
			_, err := r.add(nil)
			r.Must(err)
			r.Same("calls", []seen{{
				Verb: "ADD", Network: "primary", IfName: "eth0", Mark: "runtime",
				Args: "IgnoreUnknown=true;K8S_POD_NAMESPACE=app;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u",
			}}, r.calls())
			want := r.report("ADD", eth0("primary"))
			want.Plain, want.NoWait = true, true
			r.Same("reports", []api.Report{want}, r.planner.told)
			r.Same("recorded", []string{"c1"}, r.recorded())
		})
	}
}

// TestR3PlainPodByThePlanner: what the planner says counts, where it says it in time.
func TestR3PlainPodByThePlanner(t *testing.T) {
	r := newRig(t)
	r.planner.plan = r.with()
	_, err := r.add(nil)
	r.Must(err)
	calls := r.calls()
	if len(calls) != 1 || calls[0].Mark != "daemon" || calls[0].Args != "K8S_POD_NAME=web" {
		t.Errorf("got %+v", calls)
	}
	r.Same("waits for its status", false, !r.planner.told[0].NoWait)
}

// TestR1LaterAnnotation: the planner knows of a network that the runtime did not
// deliver; the pod is then like any annotated one.
func TestR1LaterAnnotation(t *testing.T) {
	r := newRig(t)
	r.planner.plan = r.with("lan")
	_, err := r.add(nil)
	r.Must(err)
	r.Same("calls", []string{"ADD primary", "ADD lan"}, r.ran())
	r.Same("reports", []api.Report{r.report("ADD", eth0("primary"), net1("app/lan"))}, r.planner.told)
}

func TestR1AnnotatedPod(t *testing.T) {
	r := newRig(t)
	r.planner.plan = func(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
		if end, _ := ctx.Deadline(); time.Until(end) < 80*time.Second || req.Plain {
			t.Errorf("asked until %v, plain %v", end, req.Plain)
		}
		return r.with("lan")(ctx, req)
	}
	_, err := r.add(object{"runtimeConfig": selecting("lan")})
	r.Must(err)
	r.Same("calls", []string{"ADD primary", "ADD lan"}, r.ran())
	r.Same("reports", []api.Report{r.report("ADD", eth0("primary"), net1("app/lan"))}, r.planner.told)
}

// TestR1NoPlanNothingRuns: whatever keeps the pod's networks from being known, the ADD
// fails with the planner's code, and nothing was attached or recorded.
func TestR1NoPlanNothingRuns(t *testing.T) {
	later := func(text string) error { return api.WithCode(types.ErrTryAgainLater, errors.New(text)) }
	refused := &plan.Refusal{Pod: plan.Pod{Namespace: "app", Name: "web"}, Problems: []netspec.Problem{{Key: "k", Wrong: "wrong"}}}
	for name, c := range map[string]struct {
		runtimeConfig object
		err           error
		code          uint
	}{
		"plain, and depends":          {delivered(object{}), fmt.Errorf("%w (%w)", later("cold"), api.ErrDepends), types.ErrTryAgainLater},
		"plain, and refused":          {delivered(object{}), refused, types.ErrInvalidNetworkConfig},
		"annotated, and away":         {selecting("lan"), later("away"), types.ErrTryAgainLater},
		"annotated, and refused":      {selecting("lan"), refused, types.ErrInvalidNetworkConfig},
		"annotated, and the own code": {selecting("lan"), api.WithCode(101, errors.New("own")), 101},
		"default-network":             {delivered(object{netspec.AnnotationDefaultNetwork: "lan"}), later("away"), types.ErrTryAgainLater},
		"a runtime without":           {object{}, later("away"), types.ErrTryAgainLater},
		"a runtime with null":         {delivered(nil), later("away"), types.ErrTryAgainLater},
		"a runtime with nonsense":     {delivered([]any{1}), later("away"), types.ErrTryAgainLater},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.planner.plan = func(context.Context, api.PlanRequest) (*plan.Plan, error) { return nil, c.err }
			_, err := r.add(object{"runtimeConfig": c.runtimeConfig})
			r.Fails(err, c.code, c.err.Error())
			r.Same("calls", []string(nil), r.ran())
			r.Same("recorded", []string(nil), r.recorded())
		})
	}
}

// TestR1RuntimeWithoutAnnotations: nobody but the planner knows whether the pod is plain.
func TestR1RuntimeWithoutAnnotations(t *testing.T) {
	for name, runtimeConfig := range map[string]any{"no key": nil, "no annotations": object{}, "null": delivered(nil), "malformed": delivered("x")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.planner.plan = r.with()
			_, err := r.add(object{"runtimeConfig": runtimeConfig})
			r.Must(err)
			if len(r.planner.asked) != 1 || r.planner.asked[0].Plain || r.planner.told[0].Plain {
				t.Errorf("asked %+v, told %+v", r.planner.asked, r.planner.told)
			}
		})
	}
}

// TestR3WhoIsPlain: the node's default networks make a pod depend, outside the system namespaces.
func TestR3WhoIsPlain(t *testing.T) {
	defaults := []any{"extra"}
	for name, c := range map[string]struct {
		changes object
		plain   bool
	}{
		"no annotation":           {object{}, true},
		"other annotations":       {object{"runtimeConfig": delivered(object{"app": "web"})}, true},
		"empty annotation":        {object{"runtimeConfig": selecting(" ")}, true},
		"networks":                {object{"runtimeConfig": selecting("lan")}, false},
		"default networks":        {object{"defaultNetworks": defaults}, false},
		"a system namespace":      {object{"defaultNetworks": defaults, "systemNamespaces": []any{"kube-system", "app"}}, true},
		"without clusterNetwork":  {object{"defaultNetworks": defaults, "clusterNetwork": nil}, true}, // contract 1.3c
		"networks there as well":  {object{"systemNamespaces": []any{"app"}, "runtimeConfig": selecting("lan")}, false},
		"the planner is in here":  {object{}, false},
		"the primary is replaced": {object{"runtimeConfig": delivered(object{netspec.AnnotationDefaultNetwork: "x"})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.planner.plan = r.with()
			r.plugin.AlwaysAsk = name == "the planner is in here"
			_, err := r.add(c.changes)
			r.Must(err)
			r.Same("plain", c.plain, r.planner.asked[0].Plain)
		})
	}
}

// TestC1_20OnlyWhatIsNeededLeavesThePlugin: the whole request.
func TestC1_20OnlyWhatIsNeededLeavesThePlugin(t *testing.T) {
	r := newRig(t)
	r.plugin.Environ = []string{"SECRET=token"}
	inv := r.inv
	inv.Args += ";X=a=b"
	inv.Stdin = []byte(`{"cniVersion":"1.0.0","name":"m","type":"multus-shim","cniDir":"` + r.path("state") + `","x":9007199254740993,` +
		`"host":{"snapshot":{"name":"p"}},"prevResult":{"ips":[]},"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"lan"},"bandwidth":{"n":9007199254740993}}}`)
	_, err := r.plugin.Add(t.Context(), inv)
	r.Fails(err, types.ErrTryAgainLater, "the daemon is away")
	place, err := r.records().Place()
	r.Must(err)
	r.Same("the request", []api.PlanRequest{{
		Protocol: api.Protocol, ContainerID: "c1", NetNS: r.inv.NetNS, Interface: "eth0", Args: inv.Args, Ledger: place,
		Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"m","type":"multus-shim","cniDir":"` + r.path("state") + `","x":9007199254740993}`),
		RuntimeConfig: map[string]json.RawMessage{
			"io.kubernetes.cri.pod-annotations": json.RawMessage(`{"k8s.v1.cni.cncf.io/networks":"lan"}`),
			"bandwidth":                         json.RawMessage(`{"n":9007199254740993}`),
		},
	}}, r.planner.asked)
}

// TestT25AnswerInTheVersionAsked: the runtime's version is one, the primary network's another.
func TestT25AnswerInTheVersionAsked(t *testing.T) {
	for _, primary := range []string{"0.3.1", "1.0.0", "1.1.0"} {
		for asked, shape := range map[string]string{
			"0.3.1": `{"cniVersion":"0.3.1","interfaces":[{"name":"eth0","sandbox":"NS"}],"ips":[{"version":"4","address":"10.1.0.2/24"}],"dns":{}}`,
			"0.4.0": `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"NS"}],"ips":[{"version":"4","address":"10.1.0.2/24"}],"dns":{}}`,
			"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"NS"}],"ips":[{"address":"10.1.0.2/24"}]}`,
			"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"NS"}],"ips":[{"address":"10.1.0.2/24"}]}`,
			"":      `{"cniVersion":"0.1.0","ip4":{"ip":"10.1.0.2/24"},"dns":{}}`,
		} {
			t.Run(primary+" for "+asked, func(t *testing.T) {
				r := newRig(t)
				conf := r.network("primary", nil)
				conf["cniVersion"] = primary
				r.writeConf("net.d/10-primary.conf", conf)
				changes := object{"cniVersion": asked}
				if asked == "" {
					changes["cniVersion"] = nil
				}
				got, err := r.add(changes)
				r.Must(err)
				var text, compact bytes.Buffer
				r.Must(got.PrintTo(&text))
				r.Must(json.Compact(&compact, text.Bytes()))
				r.Same("the result", shape, string(bytes.ReplaceAll(compact.Bytes(), []byte(r.inv.NetNS), []byte("NS"))))
			})
		}
	}
}

// TestI2_StatusRequired: the ADD fails with the status, and nothing of it stays.
func TestI2_StatusRequired(t *testing.T) {
	r := newRig(t)
	r.planner.plan, r.planner.reportErr = r.with("lan"), api.WithCode(types.ErrTryAgainLater, errors.New("the API is away"))
	_, err := r.add(object{"networkStatus": "required"})
	r.Fails(err, types.ErrTryAgainLater, "the API is away")
	r.Same("calls", []string{"ADD primary", "ADD lan", "DEL lan", "DEL primary"}, r.ran())
	r.Same("recorded", []string(nil), r.recorded())

	// A plain pod waits too, for its status is required like any other.
	r.planner.plan, r.planner.told = r.with(), nil
	_, err = r.add(object{"networkStatus": "required"})
	r.Fails(err, types.ErrTryAgainLater, "the API is away")
	r.Same("waits for its status", true, !r.planner.told[0].NoWait)

	// By default the pod runs, and its status comes later.
	_, err = r.add(nil)
	r.Must(err)
}

// TestT18FailureIsReported: the planner learns of it with the delegate's code, and the
// runtime gets it unchanged.
func TestT18FailureIsReported(t *testing.T) {
	r := newRig(t)
	r.planner.plan = func(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
		p, err := r.with("lan")(ctx, req)
		p.Attachments[1].Config = r.parse(r.network("lan", object{"ADD": object{"code": 111, "msg": "no addresses left"}}))
		return p, err
	}
	_, err := r.add(object{"runtimeConfig": selecting("lan")})
	const line = `pod app/web: network app/lan (interface net1): ADD: plugin "scripted" (ADD): no addresses left`
	r.Fails(err, 111, line)
	r.Same("calls", []string{"ADD primary", "ADD lan", "DEL lan", "DEL primary"}, r.ran())
	want := r.report("ADD", eth0("primary"), api.Attachment{Network: "app/lan", Interface: "net1", Plugins: []string{delegate}, Failed: true})
	want.NoWait, want.Error = true, types.NewError(111, line, "")
	r.Same("reports", []api.Report{want}, r.planner.told)
}

func TestC1_20ArgsWithEqualSigns(t *testing.T) {
	for text, want := range map[string][]plan.Arg{
		"":                nil,
		";":               nil,
		"A=1":             {{"A", "1"}},
		"A=1;B=x=y=;C=;":  {{"A", "1"}, {"B", "x=y="}, {"C", ""}},
		"A=1;A=2":         {{"A", "1"}, {"A", "2"}},
		"K8S_POD_NAME=é ": {{"K8S_POD_NAME", "é "}},
	} {
		got, err := parseArgs(text)
		if r := (check.T{T: t}); err != nil {
			t.Errorf("%q: %v", text, err)
		} else {
			r.Same(text, want, got)
		}
	}
}

// TestR2DelWithWrongArgs: an ADD is refused, but its DEL is not kept from succeeding.
func TestR2DelWithWrongArgs(t *testing.T) {
	r := newRig(t)
	_, err := r.add(nil)
	r.Must(err)
	r.inv.Args = "IgnoreUnknown=1;alone"
	_, err = r.add(nil)
	r.Fails(err, types.ErrInvalidEnvironmentVariables, `CNI_ARGS: "alone" is no pair of the form KEY=VALUE`)
	for range 2 { // with a record, and without
		r.Must(r.plugin.Del(t.Context(), r.call(nil)))
	}
	r.Same("calls", []string{"ADD primary", "DEL primary"}, r.ran())
}

// TestR6IndicatorFile: no pod is attached while it is missing, and DEL does not mind.
func TestR6IndicatorFile(t *testing.T) {
	for name, where := range map[string]func(ready, primary string) object{
		"where the host has it": func(ready, primary string) object {
			return object{"readinessindicatorfile": "/in/the/daemon/ready", "host": object{"primaryFile": primary, "trusted": true, "indicatorFile": ready}}
		},
		"as configured": func(ready, primary string) object {
			return object{"readinessindicatorfile": ready, "host": nil, "clusterNetwork": primary}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			changes := where(r.path("ready"), r.path("net.d/10-primary.conf"))
			_, err := r.add(changes)
			r.Fails(err, types.ErrTryAgainLater, "the readiness indicator file "+r.path("ready")+" is missing")
			r.Same("calls", []string(nil), r.ran())
			r.write("ready", "")
			_, err = r.add(changes)
			r.Must(err)
			r.Must(os.Remove(r.path("ready")))
			r.Must(r.plugin.Del(t.Context(), r.call(changes)))
			r.Same("calls", []string{"ADD primary", "DEL primary"}, r.ran())
		})
	}
}

// TestR19WhatDelegatesSay is in the log, a line for each of theirs.
func TestR19WhatDelegatesSay(t *testing.T) {
	r := newRig(t)
	conf := r.network("primary", nil)
	conf["say"] = "one\ntwo\n"
	r.writeConf("net.d/10-primary.conf", conf)
	_, err := r.add(nil)
	r.Must(err)
	for _, line := range []string{"one", "two"} {
		if want := `msg="a delegate says" stderr="plugin scripted (ADD): ` + line + "\"\n"; !bytes.Contains([]byte(r.log.String()), []byte(want)) {
			t.Errorf("no %q in\n%s", want, r.log.String())
		}
	}
}
