package thin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/manifest"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/shim"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a node with the primary network's file, and an API server.
type rig struct {
	check.T
	dir        string
	api        *apiserver.Server
	kubeconfig string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: check.T{T: t}, dir: t.TempDir()}
	r.write("10-primary.conf", `{"cniVersion":"1.0.0","name":"primary","type":"bridge"}`)
	var err error
	r.api, err = apiserver.Start("127.0.0.1")
	r.Must(err)
	t.Cleanup(r.api.Close)
	r.kubeconfig, err = r.api.Kubeconfig(r.dir)
	r.Must(err)
	return r
}

// conf is the plugin's configuration.
func (r *rig) conf() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"m","type":"multus","cniDir":%q,"clusterNetwork":%q,"kubeconfig":%q}`, r.path("state"), r.path("10-primary.conf"), r.kubeconfig)
}

// planner makes the planner of one invocation; end is the invocation's.
func (r *rig) planner() (p shim.Planner, end func()) {
	r.Helper()
	cfg, _, err := config.Parse([]byte(r.conf()))
	r.Must(err)
	p, end, err = Cluster{}.Planner(cfg, slog.New(slog.DiscardHandler))
	r.Must(err)
	return p, end
}

// pod puts a pod.
func (r *rig) pod(name, uid string, annotations map[string]string) {
	r.api.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name, UID: kubetypes.UID(uid), Annotations: annotations}})
}

// delivered is what a runtime hands over.
func delivered(annotations map[string]string) map[string]json.RawMessage {
	return map[string]json.RawMessage{config.PodAnnotationsCapability: cniconf.Quote(annotations)}
}

func selecting(networks string) map[string]string {
	return map[string]string{netspec.AnnotationNetworks: networks}
}

func (r *rig) request(pod, uid string) api.PlanRequest {
	return api.PlanRequest{
		Protocol: api.Protocol, ContainerID: "c1", NetNS: "/ns", Interface: "eth0", Config: json.RawMessage(r.conf()),
		Args: "K8S_POD_NAMESPACE=app;K8S_POD_NAME=" + pod + ";K8S_POD_UID=" + uid,
	}
}

// plan asks a planner of its own.
func (r *rig) plan(req api.PlanRequest) (*plan.Plan, error) {
	r.Helper()
	p, end := r.planner()
	defer end()
	return p.Plan(r.Context(), req)
}

func names(p *plan.Plan) (all []string) {
	for _, a := range p.Attachments {
		all = append(all, fmt.Sprintf("%s %s %s", a.Role, a.Network, a.Interface))
	}
	return all
}

// attached is the report of a pod with two networks.
func attached(pod, uid string) api.Report {
	return api.Report{
		Protocol: api.Protocol, Verb: "ADD", ContainerID: "c1", Pod: api.Pod{Namespace: "app", Name: pod, UID: uid},
		Attachments: []api.Attachment{
			{Network: "primary", Interface: "eth0", Addresses: []string{"10.1.0.2/24"}, Status: []json.RawMessage{json.RawMessage(`{"name":"primary","interface":"eth0","ips":["10.1.0.2"],"default":true,"dns":{}}`)}},
			{Network: "app/lan", Interface: "net1", Addresses: []string{"10.2.0.2/24"}, Status: []json.RawMessage{json.RawMessage(`{"name":"app/lan","interface":"net1","ips":["10.2.0.2"],"dns":{}}`)}},
		},
	}
}

// status is what the API's pod says, as "network interface".
func (r *rig) status(pod string) (all []string) {
	r.Helper()
	annotations, _ := r.api.Pod("app", pod)["metadata"].(map[string]any)["annotations"].(map[string]any)
	text, _ := annotations[netspec.AnnotationStatus].(string)
	return r.parse(text)
}

func (r *rig) parse(status string) (all []string) {
	r.Helper()
	entries, err := netspec.ParseStatus(status)
	r.Must(err)
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%s %s %v", e.Name, e.Interface, e.IPs))
	}
	return all
}

// events are those of the API, sorted.
func (r *rig) events() (all []string) {
	for _, e := range r.api.Events() {
		all = append(all, fmt.Sprintf("%s %s: %s", e["type"], e["reason"], e["message"]))
	}
	return slices.Sorted(slices.Values(all))
}

// asked are the API's requests since the last look, and how often each was made.
func (r *rig) asked() map[string]int {
	all := map[string]int{}
	for _, req := range r.api.Requests() {
		all[req.String()]++
	}
	r.api.ResetRequests()
	return all
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, content string) {
	r.Helper()
	r.Must(os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	r.Must(os.WriteFile(r.path(name), []byte(content), 0o600))
}

const (
	podPath = "/api/v1/namespaces/app/pods/web"
	nadPath = "/apis/k8s.cni.cncf.io/v1/namespaces/app/network-attachment-definitions/lan"
)

// TestC1_4OnePod: its ADD, from the plan to the status and the events.
func TestC1_4OnePod(t *testing.T) {
	r := newRig(t)
	r.pod("web", "u", selecting("lan"))
	r.api.PutNAD(metav1.ObjectMeta{Namespace: "app", Name: "lan"}, `{"cniVersion":"1.0.0","type":"macvlan"}`)
	p, end := r.planner()
	got, err := p.Plan(t.Context(), r.request("web", "u"))
	r.Must(err)
	r.Same("networks", []string{"primary primary eth0", "secondary app/lan net1"}, names(got))
	r.Same("requests of the plan", map[string]int{"GET " + podPath: 1, "GET " + nadPath: 1}, r.asked())
	r.Must(p.Report(t.Context(), attached("web", "u")))
	r.Same("status", []string{"primary eth0 [10.1.0.2]", "app/lan net1 [10.2.0.2]"}, r.status("web"))
	r.Same("patches", 1, r.asked()["PATCH "+podPath+"/status"])
	end()
	r.Same("requests of the end", map[string]int{"POST /api/v1/namespaces/app/events": 2}, r.asked())
	r.Same("events", []string{
		"Normal AddedInterface: Add eth0 [10.1.0.2/24] from primary",
		"Normal AddedInterface: Add net1 [10.2.0.2/24] from app/lan",
	}, r.events())
}

// TestC1_11WrongRequest is told to the pod's owner; what the node lacks is not.
func TestC1_11WrongRequest(t *testing.T) {
	r := newRig(t)
	r.pod("web", "u", selecting("lan"))
	_, err := r.plan(r.request("web", "u"))
	r.Fails(err, types.ErrInvalidNetworkConfig, "app/lan")
	r.Same("events", []string{"Warning NoNetworkFound: " + err.Error()}, r.events())

	r.api.ExpireEvents()
	r.pod("web", "u", nil)
	r.Must(os.Remove(r.path("10-primary.conf")))
	_, err = r.plan(r.request("web", "u"))
	r.Fails(err, types.ErrTryAgainLater, "10-primary.conf")
	r.Same("events", []string(nil), r.events())
}

// TestC1_4ReportsThatAskNothing: of a DEL, and of an ADD that failed.
func TestC1_4ReportsThatAskNothing(t *testing.T) {
	r := newRig(t)
	r.pod("web", "u", nil)
	p, end := r.planner()
	failure, del := attached("web", "u"), attached("web", "u")
	failure.Error, del.Verb = types.NewError(11, "x", ""), "DEL"
	r.Must(errors.Join(p.Report(t.Context(), failure), p.Report(t.Context(), del)))
	end()
	r.Same("requests", map[string]int{}, r.asked())
}

// TestT19StatusThatCannotBeWritten in the caller's time is an error, with its pod.
func TestT19StatusThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	r.pod("web", "u", nil)
	r.api.Fail(apiserver.Failure{Method: "PATCH", Code: 500, Times: 1000})
	p, end := r.planner()
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Fails(p.Report(ctx, attached("web", "u")), types.ErrTryAgainLater, "pod app/web: network-status: ")
	r.Same("status", []string(nil), r.status("web"))
}

// TestT19StatusOfAnotherPod of this name is left alone.
func TestT19StatusOfAnotherPod(t *testing.T) {
	r := newRig(t)
	r.pod("web", "u2", nil)
	p, end := r.planner()
	defer end()
	if err := p.Report(t.Context(), attached("web", "u")); !errors.Is(err, kube.ErrPodGone) {
		t.Errorf("got %v", err)
	}
	r.Same("status", []string(nil), r.status("web"))
}

// TestT22StaticPod: the runtime names the manifest's UID, the API has a mirror of its own.
func TestT22StaticPod(t *testing.T) {
	r := newRig(t)
	r.pod("web", "mirror", map[string]string{netspec.AnnotationConfigSource: "file", "kubernetes.io/config.hash": "hash"})
	p, end := r.planner()
	defer end()
	got, err := p.Plan(t.Context(), r.request("web", "hash"))
	r.Must(err)
	r.Same("the pod", plan.Pod{Namespace: "app", Name: "web", UID: "hash"}, got.Pod)
	r.Must(p.Report(t.Context(), attached("web", "hash")))
	r.Same("status", []string{"primary eth0 [10.1.0.2]", "app/lan net1 [10.2.0.2]"}, r.status("web"))
	// One that the kubelet has not told the API of yet.
	req := r.request("early", "hash")
	req.RuntimeConfig = delivered(map[string]string{netspec.AnnotationConfigSource: "file"})
	_, err = p.Plan(t.Context(), req)
	r.Must(err)
}

// TestT23APIAway: an annotated pod waits for it, a plain one that the runtime shows does not.
func TestT23APIAway(t *testing.T) {
	r := newRig(t)
	r.api.Refuse()
	req := r.request("web", "u")
	for name, c := range map[string]struct {
		runtimeConfig map[string]json.RawMessage
		fails         bool
	}{
		"not shown": {nil, true}, "annotated": {delivered(selecting("lan")), true}, "plain": {delivered(map[string]string{}), false},
	} {
		req.RuntimeConfig = c.runtimeConfig
		got, err := r.plan(req)
		if c.fails {
			r.Fails(err, types.ErrTryAgainLater, "pod app/web: ")
			continue
		}
		r.Must(err)
		r.Same(name, []string{"primary primary eth0"}, names(got))
	}
}

// TestR1WithoutAPI: neither a kubeconfig nor a cluster is known. The node's own networks
// are all there is, and a pod that selects more does not get less.
func TestR1WithoutAPI(t *testing.T) {
	r := newRig(t)
	r.kubeconfig = ""
	got, err := r.plan(r.request("web", "u"))
	r.Must(err)
	r.Same("networks", []string{"primary primary eth0"}, names(got))
	r.Same("the pod", plan.Pod{Namespace: "app", Name: "web", UID: "u"}, got.Pod)
	req := r.request("web", "u")
	req.RuntimeConfig = delivered(selecting("lan"))
	_, err = r.plan(req)
	r.Fails(err, types.ErrInvalidNetworkConfig, "app/lan")
	p, end := r.planner()
	r.Must(p.Report(t.Context(), attached("web", "u")))
	end()
	r.Same("requests", map[string]int{}, r.asked())
}

// TestR2KubeconfigIsMissing: ADDs that need the API come again, and nothing else minds.
func TestR2KubeconfigIsMissing(t *testing.T) {
	r := newRig(t)
	r.kubeconfig = r.path("absent")
	_, err := r.plan(r.request("web", "u"))
	r.Fails(err, types.ErrTryAgainLater, r.path("absent"))
	req := r.request("web", "u")
	for name, want := range map[string]map[string]string{"plain": {}, "annotated": selecting("lan")} {
		req.RuntimeConfig = delivered(want)
		got, err := r.plan(req)
		if name == "annotated" {
			r.Fails(err, types.ErrTryAgainLater, r.path("absent"))
			continue
		}
		r.Must(err)
		r.Same(name, []string{"primary primary eth0"}, names(got))
	}
	p, end := r.planner()
	r.Fails(p.Report(t.Context(), attached("web", "u")), types.ErrTryAgainLater, r.path("absent"))
	end()
	plugin := shim.Plugin{Planner: Cluster{}.Planner, AlwaysAsk: true, Logger: func(*config.Config) (*slog.Logger, io.Closer) {
		return slog.New(slog.DiscardHandler), io.NopCloser(nil)
	}}
	inv := shim.Invocation{ContainerID: "c1", NetNS: "/ns", Interface: "eth0", Stdin: []byte(r.conf())}
	_, err = plugin.Add(t.Context(), inv)
	r.Fails(err, types.ErrTryAgainLater, r.path("absent"))
	r.Must(plugin.Del(t.Context(), inv))
	r.Must(plugin.Status(t.Context(), inv))
}

// TestI2_FolderOfManifests stands for the API.
func TestI2_FolderOfManifests(t *testing.T) {
	r := newRig(t)
	r.kubeconfig = r.path("manifests")
	r.write("manifests/a.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: app, uid: u, annotations: {k8s.v1.cni.cncf.io/networks: lan}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: app}
spec: {config: '{"cniVersion":"1.0.0","type":"macvlan"}'}
`)
	got, err := r.plan(r.request("web", "u"))
	r.Must(err)
	r.Same("networks", []string{"primary primary eth0", "secondary app/lan net1"}, names(got))
	p, end := r.planner()
	defer end()
	r.Must(p.Report(t.Context(), attached("web", "u")))
	text, err := os.ReadFile(manifest.StatusFile(r.path("manifests"), "app", "web"))
	r.Must(err)
	r.Same("status", []string{"primary eth0 [10.1.0.2]", "app/lan net1 [10.2.0.2]"}, r.parse(string(text)))
	if err := p.Report(t.Context(), attached("web", "u2")); !errors.Is(err, gather.ErrNotFound) {
		t.Errorf("the status of another pod: %v", err)
	}
	r.write("manifests/b.yaml", "not: [yaml")
	_, err = r.plan(r.request("web", "u"))
	r.Fails(err, types.ErrTryAgainLater, "b.yaml")
}

// TestC1_20WrongRequests never reach the API.
func TestC1_20WrongRequests(t *testing.T) {
	r := newRig(t)
	req := r.request("web", "u")
	req.Args = "alone"
	_, err := r.plan(req)
	r.Fails(err, types.ErrInvalidEnvironmentVariables, `"alone" is no pair`)
	req = r.request("web", "u")
	req.Config = json.RawMessage(`{"delegates":1}`)
	_, err = r.plan(req)
	r.Fails(err, types.ErrInvalidNetworkConfig, "delegates")
	r.Same("requests", []string(nil), slices.Sorted(maps.Keys(r.asked())))
}
