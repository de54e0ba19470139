package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

const module = "github.com/multus-thick/multus/"

// TestI2_PlanIsPure: the plan has no clock, no files, no network, no log.
func TestI2_PlanIsPure(t *testing.T) {
	imports := goList(t, "-f", `{{join .Imports "\n"}}`, "internal/plan")
	for _, banned := range []string{"os", "net", "context", "time", "log", "log/slog", "io", "io/fs", "os/exec", "net/http", "path/filepath", "math/rand", "math/rand/v2"} {
		if slices.Contains(imports, banned) {
			t.Errorf("internal/plan imports %q", banned)
		}
	}
}

// TestI2_NoClientInThePlugin: what runs in the plugin on the host reaches no Kubernetes
// client and no metrics library (design, budgets).
func TestI2_NoClientInThePlugin(t *testing.T) {
	for _, pkg := range []string{"plan", "netspec", "cniconf", "config", "attach", "gather", "ledger", "cnirun", "netns", "shim", "api"} {
		dir := "internal/" + pkg
		if pkg == "api" {
			dir = pkg
		}
		for _, dep := range goList(t, "-deps", dir) {
			if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, "sigs.k8s.io/") || strings.HasPrefix(dep, "github.com/prometheus/") {
				t.Errorf("%s reaches %s", dir, dep)
			}
		}
	}
}

// goList runs "go list" on one package of the module and splits its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	args[len(args)-1] = module + args[len(args)-1]
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil || len(out) == 0 {
		t.Fatalf("go list %v: %v, %d bytes", args, err, len(out))
	}
	return strings.Fields(string(out))
}

// TestR3Depends: a plain pod depends on nothing but the node's own configuration.
func TestR3Depends(t *testing.T) {
	networks := map[string]string{netspec.AnnotationNetworks: "net-a"}
	for name, c := range map[string]struct {
		config      string
		namespace   string
		annotations map[string]string
		want        bool
	}{
		"plain":                         {`{"clusterNetwork": "main"}`, "app", nil, false},
		"annotated":                     {`{"clusterNetwork": "main"}`, "app", networks, true},
		"default-network":               {`{"clusterNetwork": "main"}`, "app", map[string]string{netspec.AnnotationDefaultNetwork: "a"}, true},
		"annotation of blanks":          {`{"clusterNetwork": "main"}`, "app", map[string]string{netspec.AnnotationNetworks: " "}, false},
		"other annotations":             {`{"clusterNetwork": "main"}`, "app", map[string]string{netspec.AnnotationStatus: "[]"}, false},
		"default networks":              {`{"clusterNetwork": "main", "defaultNetworks": ["a"]}`, "app", nil, true},
		"default networks not for it":   {`{"clusterNetwork": "main", "defaultNetworks": ["a"]}`, "kube-system", nil, false},
		"default networks not in use":   {`{"delegates": [{"type": "bridge"}], "defaultNetworks": ["a"]}`, "app", nil, false},
		"annotated in system namespace": {`{"clusterNetwork": "main", "defaultNetworks": ["a"]}`, "kube-system", networks, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := plan.Subject{Pod: plan.Pod{Namespace: c.namespace, Name: "web"}, Annotations: c.annotations}
			if got := plan.Depends(parseConfig(t, c.config), pod); got != c.want {
				t.Errorf("depends: %v", got)
			}
		})
	}
}

// TestR3Selects: only networks that the pod selected make its caller wait.
func TestR3Selects(t *testing.T) {
	for role, want := range map[plan.Role]bool{
		plan.Primary: false, plan.Auxiliary: false, plan.Default: false, plan.Secondary: true, plan.Plugged: false,
	} {
		p := plan.Plan{Attachments: []plan.Attachment{{Role: plan.Primary}, {Role: role}}}
		if p.Selects() != want {
			t.Errorf("with a network of the role %s: %v", role, !want)
		}
	}
}

// TestI2_Needs: each thing is asked for once, and all that can be known is.
func TestI2_Needs(t *testing.T) {
	cfg := parseConfig(t, `{"clusterNetwork": "/etc/cni/net.d/10-main.conf", "defaultNetworks": ["dn", "/etc/cni/node"]}`)
	pod := plan.Subject{Pod: plan.Pod{Namespace: "app"}, Annotations: map[string]string{
		netspec.AnnotationNetworks: "net-a,infra/net-a,net-a,kube-system/dn", netspec.AnnotationDefaultNetwork: "dn",
	}}
	want := plan.Needs{
		NADs:    []netspec.Ref{{Namespace: "kube-system", Name: "dn"}, {Namespace: "app", Name: "net-a"}, {Namespace: "infra", Name: "net-a"}},
		ConfDir: true,
		Paths:   []string{"/etc/cni/net.d/10-main.conf", "/etc/cni/node"},
	}
	if diff := cmp.Diff(want, plan.NeedsOf(cfg, pod)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	pod.Annotations[netspec.AnnotationNetworks] = "[{broken"
	want.NADs = want.NADs[:1]
	if diff := cmp.Diff(want, plan.NeedsOf(cfg, pod)); diff != "" {
		t.Errorf("with a broken annotation (- want, + got):\n%s", diff)
	}
}

// TestC1_8Single: the network that /delegate adds gets what a selected one does.
func TestC1_8Single(t *testing.T) {
	call := plan.Call{ContainerID: "c0ffee", Interface: "eth0", Args: []plan.Arg{
		{"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", "5a1f0c3e"}, {"EXTRA", "x"},
	}}
	conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"net-a","type":"macvlan","capabilities":{"ips":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := netspec.Selection{Interface: "lan0", MAC: "02:00:00:00:00:05", IPs: []string{"10.1.0.5/24"}, CNIArgs: map[string]json.RawMessage{"a": []byte("1")}}
	a, pod, err := plan.Single(parseConfig(t, `{}`), call, conf, s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"role":"plugged","network":"net-a","interface":"lan0",` +
		`"config":{"cniVersion":"1.0.0","name":"net-a","type":"macvlan","capabilities":{"ips":true},"args":{"cni":{"a":1}}},` +
		`"args":[["IgnoreUnknown","true"],["K8S_POD_NAMESPACE","app"],["K8S_POD_NAME","web"],["K8S_POD_INFRA_CONTAINER_ID","c0ffee"],` +
		`["K8S_POD_UID","5a1f0c3e"],["EXTRA","x"],["MAC","02:00:00:00:00:05"],["IP","10.1.0.5/24"]],` +
		`"capabilityArgs":{"ips":["10.1.0.5/24"]},"request":{"mac":"02:00:00:00:00:05","ips":["10.1.0.5/24"]}}`
	if diff := cmp.Diff(want, string(cniconf.Quote(a))); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	if want := (plan.Pod{Namespace: "app", Name: "web", UID: "5a1f0c3e"}); pod != want {
		t.Errorf("pod %+v", pod)
	}
	_, _, err = plan.Single(parseConfig(t, `{"capabilityCheck": "error"}`), call, conf, s)
	var refusal *plan.Refusal
	if !errors.As(err, &refusal) || refusal.CNICode() != types.ErrInvalidNetworkConfig || len(refusal.Problems) != 1 {
		t.Errorf("with a request that no plugin takes: %v", err)
	}
}

func parseConfig(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// FuzzBuild: whatever users write, the plan is built or refused with lines that name
// the pod, and a plan survives being written and read.
func FuzzBuild(f *testing.F) {
	for _, file := range goldenFiles(f) {
		s := scenario(f, parseArchive(f, file))
		nad := ""
		if len(s.nads) > 0 {
			nad = s.nads[0].Config
		}
		f.Add(s.pod.Annotations[netspec.AnnotationNetworks], s.pod.Annotations[netspec.AnnotationDefaultNetwork], nad, string(cniconf.Quote(s.call.RuntimeConfig)))
	}
	cfg := parseConfig(f, `{"clusterNetwork": "main", "defaultNetworks": ["/x"], "namespaceIsolation": true, "globalNamespaces": "infra"}`)
	f.Fuzz(func(t *testing.T, networks, defaultNetwork, nad, runtimeConfig string) {
		call := plan.Call{ContainerID: "c0ffee", Interface: "eth0"}
		_ = json.Unmarshal([]byte(runtimeConfig), &call.RuntimeConfig) // what a runtime sends is JSON
		pod := plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web"}, Annotations: map[string]string{
			netspec.AnnotationNetworks: networks, netspec.AnnotationDefaultNetwork: defaultNetwork,
		}}
		p, err := plan.Build(cfg, call, pod, fuzzFacts(plan.NeedsOf(cfg, pod), nad))
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "pod app/web: ") {
					t.Errorf("a line without the pod: %q", line)
				}
			}
			return
		}
		names := map[string]int{}
		for _, a := range p.Attachments {
			names[a.Interface]++
		}
		if len(names) != len(p.Attachments) || p.Attachments[0].Role != plan.Primary {
			t.Errorf("interfaces %v, first role %s", slices.Collect(maps.Keys(names)), p.Attachments[0].Role)
		}
		roundTrip(t, p)
	})
}

// fuzzFacts answers everything that is needed: definitions and files with one text,
// devices in plenty.
func fuzzFacts(needs plan.Needs, text string) plan.Facts {
	facts := plan.Facts{NADs: map[netspec.Ref]plan.NAD{}, Paths: map[string]plan.PathFacts{}, Devices: plan.Devices{ByResource: map[string][]string{"r": nil}}}
	for _, ref := range needs.NADs {
		facts.NADs[ref] = plan.NAD{Ref: ref, Config: text, Annotations: map[string]string{netspec.AnnotationResourceName: "r"}}
		facts.Devices.ByResource["r"] = append(facts.Devices.ByResource["r"], fmt.Sprint("device", len(facts.NADs)))
	}
	main := plan.File{Path: "/x/main.conflist", Content: []byte(text)}
	facts.ConfDir = []plan.File{main}
	for _, path := range needs.Paths {
		facts.Paths[path] = plan.PathFacts{File: main, Chained: []plan.File{main}}
	}
	return facts
}

// TestI4_SingleAllowedPlugins: /delegate is no way round the administrator's list.
func TestI4_SingleAllowedPlugins(t *testing.T) {
	cfg := parseConfig(t, `{"allowedPlugins": ["macvlan", "dhcp"]}`)
	for text, want := range map[string]string{
		`{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"dhcp"}}`:  "<nil>",
		`{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"other"}}`: `pod /: network lan: the node's key allowedPlugins does not list "other"; right would be a network of the plugins macvlan, dhcp`,
	} {
		conf, err := cniconf.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = plan.Single(cfg, plan.Call{}, conf, netspec.Selection{Interface: "lan0"})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestR7SingleNeverItself: /delegate does not run Multus as its own delegate.
func TestR7SingleNeverItself(t *testing.T) {
	conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"net-a","type":"multus-shim"}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = plan.Single(parseConfig(t, `{}`), plan.Call{}, conf, netspec.Selection{Interface: "lan0"})
	var refusal *plan.Refusal
	if !errors.As(err, &refusal) || refusal.CNICode() != types.ErrInvalidNetworkConfig {
		t.Errorf("got %v", err)
	}
}

// TestR5RefusalIsBounded: a pod can make as many mistakes as its annotation has bytes.
func TestR5RefusalIsBounded(t *testing.T) {
	text := `[{"name":"a","ips":[` + strings.TrimSuffix(strings.Repeat("1,", 1000), ",") + `]}]`
	pod := plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web"}, Annotations: map[string]string{netspec.AnnotationNetworks: text}}
	_, err := plan.Build(parseConfig(t, `{"delegates":[{"name":"p","type":"bridge"}]}`), plan.Call{Interface: "eth0"}, pod, plan.Facts{})
	lines := strings.Split(err.Error(), "\n")
	if want := "pod app/web: and 981 mistakes more"; len(lines) != 21 || lines[20] != want {
		t.Errorf("got %d lines, the last is %q, want 21 with %q", len(lines), lines[len(lines)-1], want)
	}
}

// TestR5PlanIsBounded: a large definition that is selected many times.
func TestR5PlanIsBounded(t *testing.T) {
	pod := plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web"}, Annotations: map[string]string{netspec.AnnotationNetworks: "a,a,a,a,a"}}
	ref := netspec.Ref{Namespace: "app", Name: "a"}
	facts := plan.Facts{NADs: map[netspec.Ref]plan.NAD{ref: {Ref: ref, Config: `{"type":"bridge","x":"` + strings.Repeat("x", 1<<20-30) + `"}`}}}
	cfg := parseConfig(t, `{"delegates":[{"name":"p","type":"bridge"}]}`)
	_, err := plan.Build(cfg, plan.Call{Interface: "eth0"}, pod, facts)
	const want = `pod app/web: network selection element 5, network app/a, annotation "k8s.v1.cni.cncf.io/networks": the configurations of the pod's networks are larger than 4 MiB together; right would be smaller ones, or fewer`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	pod.Annotations[netspec.AnnotationNetworks] = "a,a,a,a"
	if _, err := plan.Build(cfg, plan.Call{Interface: "eth0"}, pod, facts); err != nil {
		t.Error(err)
	}
}

// TestR5DepthIsBounded: what a tenant writes must fit into the messages and records
// that it travels in.
func TestR5DepthIsBounded(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	ref := netspec.Ref{Namespace: "app", Name: "a"}
	for _, c := range []struct {
		nad, networks string
		refused       bool
	}{
		{`{"type":"bridge","x":"[[\"[","y":` + nested(999) + `}`, `a`, false},
		{`{"type":"bridge","x":` + nested(1000) + `}`, `a`, true},
		{`{"type":"bridge"}`, `[{"name":"a","cni-args":{"x":` + nested(990) + `}}]`, false},
		{`{"type":"bridge"}`, `[{"name":"a","cni-args":{"x":` + nested(9000) + `}}]`, true},
	} {
		pod := plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web"}, Annotations: map[string]string{netspec.AnnotationNetworks: c.networks}}
		facts := plan.Facts{NADs: map[netspec.Ref]plan.NAD{ref: {Ref: ref, Config: c.nad}}}
		_, err := plan.Build(parseConfig(t, `{"delegates":[{"name":"p","type":"bridge"}]}`), plan.Call{Interface: "eth0"}, pod, facts)
		if (err != nil) != c.refused {
			t.Errorf("%.40s with %.40s: %v", c.nad, c.networks, err)
		}
	}
}

// TestR1NamespaceUnknown: a runtime that hands over annotations and no K8S_POD_NAMESPACE.
func TestR1NamespaceUnknown(t *testing.T) {
	pod := plan.Subject{Annotations: map[string]string{netspec.AnnotationNetworks: "a"}}
	p, err := plan.Build(parseConfig(t, `{"delegates":[{"name":"p","type":"bridge"}]}`), plan.Call{Interface: "eth0"}, pod, plan.Facts{})
	if err == nil {
		t.Fatalf("planned %s", cniconf.Quote(p))
	}
	if want := `pod /: network selection element 1, annotation "k8s.v1.cni.cncf.io/networks": the network's namespace is not known, for the runtime does not tell the pod's; right would be the namespace beside the name`; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
