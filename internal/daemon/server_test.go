package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// attached is the report of a pod with its primary network and the network app/lan.
func attached(pod string) api.Report {
	entry := func(text string) []json.RawMessage { return []json.RawMessage{json.RawMessage(text)} }
	return api.Report{
		Protocol: api.Protocol, Verb: "ADD", ContainerID: "c1", NetNS: "/ns", Pod: api.Pod{Namespace: "app", Name: pod, UID: "u"}, Millis: 30,
		Attachments: []api.Attachment{
			{Network: "primary", Interface: "eth0", Plugins: []string{"bridge"}, Addresses: []string{"10.1.0.2/24"}, Millis: 10, Status: entry(`{"name":"primary","interface":"eth0","ips":["10.1.0.2"],"default":true,"dns":{}}`)},
			{Network: "app/lan", Interface: "net1", Plugins: []string{"macvlan", "tuning"}, Addresses: []string{"10.2.0.2/24", "fd00::2/64"}, Millis: 20, Status: entry(`{"name":"app/lan","interface":"net1","ips":["10.2.0.2","fd00::2"],"dns":{}}`)},
		},
	}
}

const statusOfWeb = `status of app/web u: [{
    "name": "primary",
    "interface": "eth0",
    "ips": [
        "10.1.0.2"
    ],
    "default": true,
    "dns": {}
},{
    "name": "app/lan",
    "interface": "net1",
    "ips": [
        "10.2.0.2",
        "fd00::2"
    ],
    "dns": {}
}]`

// TestC1_4PlanAndReport: an annotated pod's ADD as the daemon sees it.
func TestC1_4PlanAndReport(t *testing.T) {
	r := run(t, map[string]any{"delegateEnv": []string{"GODEBUG", "KUBERNETES_SERVICE_HOST", "ABSENT"}})
	r.put("web", "u", "lan")
	r.nads["app/lan"] = `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan"},{"type":"tuning"}]}`
	c := r.client()
	got, err := r.plan(c, r.request("web"))
	r.Must(err)
	var attachments []string
	for _, a := range got.Attachments {
		attachments = append(attachments, fmt.Sprintf("%s %s %s %v", a.Role, a.Network, a.Interface, cniconf.Quote(a.Config)))
		if a.Args[4] != (plan.Arg{"K8S_POD_UID", "u"}) { // the runtime did not tell it
			t.Errorf("CNI_ARGS %v", a.Args)
		}
	}
	r.Same("the pod", plan.Pod{Namespace: "app", Name: "web", UID: "u"}, got.Pod)
	r.Same("environment", []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "GODEBUG=x=y"}, got.Env)
	r.Same("networks", []string{
		fmt.Sprintf("primary primary eth0 %v", []byte(`{"cniVersion":"1.0.0","name":"primary","type":"bridge"}`)),
		fmt.Sprintf("secondary app/lan net1 %v", []byte(r.nads["app/lan"])),
	}, attachments)
	r.Same("in flight", int64(1), r.d.admission.inFlight())

	answer, err := c.Report(t.Context(), attached("web"))
	r.Must(err)
	r.Same("published", true, answer.Published)
	r.Same("in flight", int64(0), r.d.admission.inFlight())
	r.Eventually("events come beside the status", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.told) == 3 })
	told := map[string]int{}
	for _, line := range r.heard() {
		told[line]++
	}
	r.Same("told", map[string]int{
		statusOfWeb: 1,
		"event on app/web: eth0 [10.1.0.2/24] from primary":            1,
		"event on app/web: net1 [10.2.0.2/24 fd00::2/64] from app/lan": 1,
	}, told)
}

// TestC1_4OtherReports: who needs no status written, gets none.
func TestC1_4OtherReports(t *testing.T) {
	r := run(t, nil)
	for name, c := range map[string]struct {
		change    func(*api.Report)
		published bool
		heard     int // status and events
	}{
		"a plain pod's": {func(r *api.Report) { r.Plain = true; r.Attachments = r.Attachments[:1] }, true, 1},
		"a failure":     {func(r *api.Report) { r.Error = types.NewError(11, "x", "") }, false, 0},
		"DEL":           {func(r *api.Report) { r.Verb = "DEL" }, false, 0},
		"CHECK":         {func(r *api.Report) { r.Verb = "CHECK" }, false, 0},
		"GC":            {func(r *api.Report) { r.Verb = "GC" }, false, 0},
	} {
		report := attached("web")
		c.change(&report)
		answer, err := r.client().Report(t.Context(), report)
		r.Must(err)
		r.Same(name, c.published, answer.Published)
		r.Same(name, c.heard, len(r.heard()))
	}
	report := attached("web")
	report.NoWait, report.Plain = true, true
	answer, err := r.client().Report(t.Context(), report)
	r.Must(err)
	r.Same("an answer at once", false, answer.Published)
	r.Eventually("the status comes later", func() bool { return len(r.heard()) == 1 })
	// What cannot be written is told to who waits.
	r.set(func(c *fakeCluster) { c.patch = func(context.Context) error { return errAway } })
	answer, err = r.client().Report(t.Context(), attached("web"))
	r.Must(err)
	r.Same("published", false, answer.Published)
}

// TestI5_NewSandboxOfAPodThatLackedNetworks: an earlier daemon may have said so of its
// earlier sandbox.
func TestI5_NewSandboxOfAPodThatLackedNetworks(t *testing.T) {
	r := run(t, nil)
	r.put("web", "u", "lan")
	r.set(func(c *fakeCluster) {
		c.pods["app/web"].Annotations[netspec.AnnotationStatus] = `[{"name":"primary","interface":"eth0","dns":{}}]`
	})
	_, err := r.client().Report(t.Context(), attached("web"))
	r.Must(err)
	r.Eventually("the condition is corrected", func() bool {
		return slices.Contains(r.heard(), "networks of app/web: as selected")
	})
}

// TestC1_8Requests: requests that are wrong, and what is said of them.
func TestC1_8Requests(t *testing.T) {
	r := run(t, nil)
	r.put("web", "u", "")
	body := func(change func(*api.PlanRequest)) string {
		req := r.request("web")
		change(&req)
		return string(cniconf.Quote(req))
	}
	keep := func(*api.PlanRequest) {}
	type outcome struct {
		Status int
		Answer string
	}
	const decode = `{"code":6,"msg":"the request`
	for name, c := range map[string]struct {
		method, path, body string
		want               outcome // Answer is the beginning
	}{
		"a good one":            {"POST", api.PathPlan, body(keep), outcome{200, `{"plan":{"version":1,`}},
		"an older plugin":       {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Protocol = 0 }), outcome{200, `{"plan":`}},
		"a newer plugin":        {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Protocol = 2 }), outcome{400, `{"code":999,"msg":"the plugin speaks protocol 2, this daemon 1: update the daemon"}`}},
		"no protocol":           {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Protocol = -1 }), outcome{400, `{"code":999,"msg":"there is no protocol -1: want one up to 1"}`}},
		"a newer report":        {"POST", api.PathReport, `{"protocol":2,"verb":"DEL"}`, outcome{400, `{"code":999,"msg":"the plugin speaks protocol 2, this daemon 1: update the daemon"}`}},
		"a report of none":      {"POST", api.PathReport, `{"protocol":-1,"verb":"DEL"}`, outcome{400, `{"code":999,"msg":"there is no protocol -1: want one up to 1"}`}},
		"an older report":       {"POST", api.PathReport, `{"verb":"DEL"}`, outcome{200, `{"published":false}`}},
		"garbage":               {"POST", api.PathPlan, `{"proto`, outcome{400, decode + ` is not what docs/PROTOCOL.md says: unexpected end of JSON input"}`}},
		"nothing":               {"POST", api.PathPlan, ``, outcome{400, decode + ` is not what docs/PROTOCOL.md says: unexpected end of JSON input"}`}},
		"a wrong type":          {"POST", api.PathReport, `{"verb":1}`, outcome{400, decode + ` is not what docs/PROTOCOL.md says: `}},
		"too large":             {"POST", api.PathPlan, `{"args":"` + strings.Repeat("x", maxRequest) + `"}`, outcome{400, decode + ` cannot be read: http: request body too large"}`}},
		"a report too large":    {"POST", api.PathReport, strings.Repeat(" ", maxRequest+1), outcome{400, decode + ` cannot be read: http: request body too large"}`}},
		"wrong CNI_ARGS":        {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Args = "A" }), outcome{400, `{"code":4,"msg":"CNI_ARGS: \"A\" is no pair of the form KEY=VALUE"}`}},
		"a wrong configuration": {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Config = json.RawMessage(`{"delegates":1}`) }), outcome{400, `{"code":7,"msg":"the plugin's configuration: key \"delegates\": expected `}},
		"no configuration":      {"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Config = json.RawMessage(`1`) }), outcome{400, `{"code":7,"msg":"the plugin's configuration: `}},
		"a pod that is not there": {
			"POST", api.PathPlan, body(func(r *api.PlanRequest) { r.Args = "K8S_POD_NAMESPACE=app;K8S_POD_NAME=x" }),
			outcome{503, `{"code":11,"msg":"pod app/x: not available yet: not found"}`},
		},
		"another method":     {"GET", api.PathPlan, "", outcome{405, "Method Not Allowed"}},
		"a report by GET":    {"GET", api.PathReport, "", outcome{405, "Method Not Allowed"}},
		"/cni by PUT":        {"PUT", api.PathCNI, "", outcome{405, "Method Not Allowed"}},
		"the state by POST":  {"POST", api.PathState, "", outcome{405, "Method Not Allowed"}},
		"another path":       {"POST", "/v2/plan", "", outcome{404, "404 page not found"}},
		"health":             {"GET", api.PathHealthz, "", outcome{200, ""}},
		"health, v4's shim":  {"POST", api.PathHealthz, "", outcome{200, ""}},
		"readiness":          {"GET", api.PathReadyz, "", outcome{200, ""}},
		"readiness, by POST": {"POST", api.PathReadyz, "", outcome{200, ""}},
		"no executor":        {"POST", api.PathCNI, `{"env":{"CNI_COMMAND":"ADD"}}`, outcome{400, `{"code":999,"msg":"this daemon may not run plugins on the host: `}},
		"no request of v4's": {"POST", api.PathDelegate, `[]`, outcome{400, decode}},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := r.http(c.method, c.path, c.body)
			if status != c.want.Status || !strings.HasPrefix(answer, c.want.Answer) || (c.want.Answer == "") != (answer == "") {
				t.Errorf("got  %d %s\nwant %d %s", status, answer, c.want.Status, c.want.Answer)
			}
		})
	}
	r.Eventually("no place is held by callers that have gone", func() bool { return r.d.admission.inFlight() == 0 })
}

// TestR3PlainThatSelects: a plain pod's caller must not go on alone where the pod has
// selected networks meanwhile, and may where the trouble is another.
func TestR3PlainThatSelects(t *testing.T) {
	r := run(t, nil)
	for networks, depends := range map[string]bool{"absent": true, "": false} {
		r.put("web", "u", networks)
		req := r.request("web")
		req.Plain = true
		req.RuntimeConfig = map[string]json.RawMessage{"io.kubernetes.cri.pod-annotations": json.RawMessage(`{}`)}
		if networks == "" {
			req.Args += ";K8S_POD_UID=other"
		}
		_, err := r.plan(r.client(), req)
		if err == nil || errors.Is(err, api.ErrDepends) != depends {
			t.Errorf("networks %q: got %v", networks, err)
		}
	}
	if told := r.heard(); len(told) != 1 || !strings.HasPrefix(told[0], "event on app/web: pod app/web: ") || !strings.Contains(told[0], "app/absent") {
		t.Errorf("events on a pod whose networks are wrong, once: %q", told)
	}
	r.Same("in flight", int64(0), r.d.admission.inFlight())
}

// TestR13LedgerElsewhere: a plugin that keeps its records in another folder of the same
// name makes the daemon unready, until one comes that does not.
func TestR13LedgerElsewhere(t *testing.T) {
	r := run(t, nil)
	r.put("web", "u", "")
	other, err := ledger.New(r.path("other"), "boot").Place()
	r.Must(err)
	ask := func(change func(*api.PlanRequest)) (int, string) {
		req := r.request("web")
		change(&req)
		c := r.client()
		defer c.Close() // gives its place back
		_, err := r.plan(c, req)
		r.Must(err) // its pod is attached all the same
		return r.http(http.MethodGet, api.PathReadyz, "")
	}
	status, _ := ask(func(r *api.PlanRequest) { r.Ledger = other })
	r.Same("another cniDir, before any plugin", 500, status)
	status, _ = ask(func(*api.PlanRequest) {})
	r.Same("readiness", 200, status)
	for name, c := range map[string]struct {
		change func(*api.PlanRequest)
		status int
	}{
		"the same": {func(*api.PlanRequest) {}, 200},
		"another":  {func(r *api.PlanRequest) { r.Ledger.Inode = other.Inode }, 500},
		"another cniDir, after a plugin with ours": {func(r *api.PlanRequest) { r.Ledger = other }, 200},
		"another boot":  {func(r *api.PlanRequest) { r.Ledger.BootID = "earlier" }, 500},
		"another path":  {func(r *api.PlanRequest) { r.Ledger.Path = "/on/the/host" }, 200},
		"does not tell": {func(r *api.PlanRequest) { r.Ledger = api.Place{} }, 200},
	} {
		status, why := ask(c.change)
		r.Same(name, c.status, status)
		if c.status != 200 && !strings.Contains(why, "mount the host's folder there") {
			t.Errorf("%s: %q", name, why)
		}
		status, _ = ask(func(*api.PlanRequest) {})
		r.Same("after "+name, 200, status)
	}
}

// TestT23NotReadyWhileTheCachesAreNot, and healthy.
func TestT23NotReadyWhileTheCachesAreNot(t *testing.T) {
	r := run(t, nil)
	r.set(func(c *fakeCluster) { c.problem = "the pods have not been listed yet" })
	status, why := r.http(http.MethodGet, api.PathReadyz, "")
	r.Same("readiness", []any{500, "the pods have not been listed yet"}, []any{status, why})
	r.Same("health", 200, r.status(http.MethodGet, api.PathHealthz, ""))
	r.set(func(c *fakeCluster) { c.problem = "" })
	r.Same("readiness", 200, r.status(http.MethodGet, api.PathReadyz, ""))
}

// TestC1_11Metrics: names, and the labels of those that v4 has.
func TestC1_11Metrics(t *testing.T) {
	r := run(t, nil)
	r.put("web", "u", "")
	c := r.client()
	_, err := r.plan(c, r.request("web"))
	r.Must(err)
	report := attached("web")
	report.Attachments[1].Failed = true
	_, err = c.Report(t.Context(), report)
	r.Must(err)
	failure := attached("web")
	failure.Verb, failure.Error = "DEL", types.NewError(11, "x", "")
	_, err = c.Report(t.Context(), failure)
	r.Must(err)
	for path, method := range map[string]string{"/nothing": "PUT", api.PathHealthz: "POST", api.PathReadyz: "GET", api.PathCNI: "POST", api.PathDelegate: "POST"} {
		r.http(method, path, "{}")
	}
	_, text := r.http(http.MethodGet, api.PathMetrics, "")
	counters := regexp.MustCompile(`(?m)^(multus_(?:server_request_total|\w+_duration_seconds_count|status_patches_total)\S*) (\S+)$`)
	var lines []string
	for _, m := range counters.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "healthz") {
			m[2] = "N" // the rig asks too
		}
		lines = append(lines, m[1]+" "+m[2])
	}
	r.Same("values", []string{
		`multus_delegate_duration_seconds_count{outcome="failed",plugin="macvlan"} 1`,
		`multus_delegate_duration_seconds_count{outcome="ok",plugin="bridge"} 1`,
		`multus_operation_duration_seconds_count{code="0",verb="ADD"} 1`,
		`multus_operation_duration_seconds_count{code="11",verb="DEL"} 1`,
		`multus_server_request_total{code="200",handler="/healthz",method="get"} N`,
		`multus_server_request_total{code="200",handler="/healthz",method="post"} N`,
		`multus_server_request_total{code="200",handler="/readyz",method="get"} 1`,
		`multus_server_request_total{code="200",handler="/v1/plan",method="post"} 1`,
		`multus_server_request_total{code="200",handler="/v1/report",method="post"} 2`,
		`multus_server_request_total{code="400",handler="/cni",method="post"} 1`,
		`multus_server_request_total{code="400",handler="/delegate",method="post"} 1`,
		`multus_server_request_total{code="404",handler="NotFound",method="put"} 1`,
		`multus_status_patches_total{outcome="failed"} 0`,
		`multus_status_patches_total{outcome="ok"} 1`,
	}, lines)
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no %s", name)
		}
	}
}

// freePort is a port that nobody has.
func freePort(t *testing.T) (port int, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, l.Addr().String()
}

// TestC1_3MetricsPort serves metrics and health, pprof where it is wanted, and no plans.
func TestC1_3MetricsPort(t *testing.T) {
	for _, pprof := range []bool{false, true} {
		port, address := freePort(t)
		r := run(t, map[string]any{"metricsPort": port, "metricsAddress": "127.0.0.1", "enablePprof": pprof})
		r.Eventually("the port is open", func() bool {
			status, _ := r.ask("tcp", address, http.MethodGet, api.PathHealthz, "")
			return status != 0
		})
		got := map[string]int{}
		for _, path := range []string{api.PathMetrics, api.PathHealthz, api.PathReadyz, "/debug/pprof/", "/debug/pprof/cmdline", api.PathPlan} {
			got[path], _ = r.ask("tcp", address, http.MethodGet, path, "")
		}
		want := map[string]int{api.PathMetrics: 200, api.PathHealthz: 200, api.PathReadyz: 200, "/debug/pprof/": 404, "/debug/pprof/cmdline": 404, api.PathPlan: 404}
		if pprof {
			want["/debug/pprof/"], want["/debug/pprof/cmdline"] = 200, 200
		}
		r.Same("answers", want, got)
		r.Same("pprof on the socket", 404, r.status(http.MethodGet, "/debug/pprof/", ""))
	}
}

// TestC1_11LogLine: one line an operation, whatever is in it.
func TestC1_11LogLine(t *testing.T) {
	var log lines
	r := prepare(t, nil, func(o *Options) { o.Log = lineLog(&log) })
	r.start()
	r.put("web", "u", "")
	failure := attached("web")
	failure.Verb, failure.Error = "DEL", types.NewError(11, "first\nsecond", "")
	for _, report := range []api.Report{attached("web"), failure} {
		_, err := r.client().Report(t.Context(), report)
		r.Must(err)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "pod=") {
			got = append(got, line)
		}
	}
	r.Same("the log", []string{
		`level=INFO msg=ADD pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24 10ms, app/lan:net1 10.2.0.2/24 fd00::2/64 20ms" millis=30` + "\n",
		`level=ERROR msg="DEL failed" pod=app/web sandbox=c1 networks="primary:eth0 10.1.0.2/24, app/lan:net1 10.2.0.2/24 fd00::2/64" millis=30 code=11 error="first\nsecond"` + "\n",
	}, got)
}

// TestT9Drain: an ADD in flight is awaited, one that waits in the queue is told to come
// again, and so is a new one; then the daemon ends.
func TestT9Drain(t *testing.T) {
	r := run(t, map[string]any{"connectionLimit": 1})
	r.put("web", "u", "")
	first := r.client()
	_, err := r.plan(first, r.request("web"))
	r.Must(err)
	queued, req := make(chan error, 1), r.request("web")
	go func() {
		_, err := r.plan(r.client(), req)
		queued <- err
	}()
	r.Eventually("the second waits", func() bool { return r.d.admission.waiting.Load() == 1 })
	r.stop()
	r.Eventually("readiness goes first", func() bool {
		status, why := r.http(http.MethodGet, api.PathReadyz, "")
		return status == 500 && why == "shutting down"
	})
	_, err = r.plan(r.client(), r.request("web"))
	r.Fails(err, types.ErrTryAgainLater, "shutting down")
	req.Plain = true
	_, err = r.plan(r.client(), req)
	r.Fails(err, types.ErrTryAgainLater, "shutting down")
	r.Same("a request of v4's", 400, r.status("POST", api.PathCNI, `{}`))
	answer, err := first.Report(t.Context(), attached("web"))
	r.Must(err)
	r.Same("published", true, answer.Published)
	r.Fails(<-queued, types.ErrTryAgainLater, "shutting down")
	r.end()
	if _, err := first.Get(t.Context(), api.PathHealthz); err == nil {
		t.Error("it serves when it has ended")
	}
}

// TestT9DrainIsBounded: an ADD that never reports does not keep the daemon.
func TestT9DrainIsBounded(t *testing.T) {
	r := run(t, map[string]any{"drainTimeout": "200ms"})
	r.put("web", "u", "")
	_, err := r.plan(r.client(), r.request("web"))
	r.Must(err)
	began := time.Now()
	r.stop()
	r.end()
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
