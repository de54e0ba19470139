package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// objects is an API server of a few objects, by path with its fieldSelector.
type objects struct {
	mu    sync.Mutex
	has   map[string]string // the answer; a number is an HTTP status
	asked []string
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	if selector := r.URL.Query().Get("fieldSelector"); selector != "" {
		key += "?" + selector
	}
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, strings.TrimSpace(r.Method+" "+key+" "+string(body)))
	text, ok := o.has[key]
	w.Header().Set("Content-Type", "application/json")
	var code int
	if _, err := fmt.Sscanf(text, "%d", &code); err == nil || !ok {
		code = cmp.Or(code, http.StatusNotFound)
		reasons := map[int]string{404: "NotFound", 403: "Forbidden", 409: "Conflict", 503: "ServiceUnavailable"}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as scripted","reason":%q,"code":%d}`, reasons[code], code)
		return
	}
	fmt.Fprint(w, text)
}

func (o *objects) claims(t *testing.T) Claims {
	t.Helper()
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}],"current-context":"c"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := Connect(Options{Kubeconfig: path, UserAgent: "multus-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return Claims{client}
}

var claimant = plan.Pod{Namespace: "app", Name: "web", UID: "u1"}

const (
	podPath    = "/api/v1/namespaces/app/pods/web"
	claimsPath = "/apis/resource.k8s.io/v1/namespaces/app/resourceclaims/"
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices?spec.driver=nic.example,spec.nodeName="
)

// cluster is a pod with a claim that it names, one that was made from a template, one
// that no container uses, and one for an extended resource.
func claimCluster() *objects {
	claim := func(results ...string) string {
		return `{"status":{"allocation":{"devices":{"results":[` + strings.Join(results, ",") + `]}}}}`
	}
	result := func(request, pool, device string) string {
		return fmt.Sprintf(`{"request":%q,"driver":"nic.example","pool":%q,"device":%q}`, request, pool, device)
	}
	device := func(name, resource, id string) string {
		return fmt.Sprintf(`{"name":%q,"attributes":{"k8s.cni.cncf.io/deviceID":{"string":%q},"k8s.cni.cncf.io/resourceName":{"string":%q},"numa":{"int":1}}}`, name, id, resource)
	}
	slice := func(pool string, generation int, devices ...string) string {
		return fmt.Sprintf(`{"spec":{"driver":"nic.example","pool":{"name":%q,"generation":%d},"devices":[%s]}}`, pool, generation, strings.Join(devices, ","))
	}
	return &objects{has: map[string]string{
		podPath: `{"metadata":{"uid":"u1"},"spec":{"nodeName":"n1",
			"resourceClaims":[{"name":"named","resourceClaimName":"mine"},{"name":"made","resourceClaimTemplateName":"t"},{"name":"idle","resourceClaimName":"idle"}],
			"initContainers":[{"name":"z-first","resources":{"claims":[{"name":"made"}]}}],
			"containers":[{"name":"b","resources":{"claims":[{"name":"named","request":"two"}]}},{"name":"a","resources":{"claims":[{"name":"named","request":"one"},{"name":"made"}]}}]},
			"status":{"resourceClaimStatuses":[{"name":"made","resourceClaimName":"web-made-x1"}],
			"extendedResourceClaimStatus":{"resourceClaimName":"web-extended","requestMappings":[{"containerName":"b","resourceName":"ext.example/nic","requestName":"container-0-request-0"}]}}}`,
		claimsPath + "mine":         claim(result("one", "n1", "vf7"), result("two/first", "n1", "vf1"), result("one", "n1", "gpu")),
		claimsPath + "web-made-x1":  claim(result("any", "n1", "vf2")),
		claimsPath + "idle":         claim(result("any", "fabric", "vf0")),
		claimsPath + "web-extended": claim(result("container-0-request-0", "n1", "ext")),
		slicesPath + "n1": `{"items":[` + strings.Join([]string{
			slice("n1", 2, device("vf1", "nic.example/vf", "0000:03:01.1"), device("vf2", "nic.example/vf", "0000:03:01.2")),
			slice("n1", 2, device("vf7", "nic.example/vf", "0000:03:01.7"), `{"name":"gpu"}`, `{"name":"ext","attributes":{"k8s.cni.cncf.io/deviceID":{"string":"0000:09:00.0"}}}`),
			slice("n1", 1, device("vf1", "nic.example/vf", "stale")),
			slice("other", 9, device("vf1", "nic.example/vf", "another pool's")),
		}, ",") + `]}`,
		slicesPath: `{"items":[` + slice("fabric", 1, device("vf0", "nic.example/vf", "0000:ff:00.0")) + `]}`,
	}}
}

// TestC1_17ClaimsByAttributes: the devices of all of the pod's claims, by container and id.
func TestC1_17ClaimsByAttributes(t *testing.T) {
	o := claimCluster()
	got, err := o.claims(t).Devices(t.Context(), claimant)
	if err != nil {
		t.Fatal(err)
	}
	of := func(claim, pool, device string) plan.Claimed {
		return plan.Claimed{Claim: claim, Driver: "nic.example", Pool: pool, Device: device}
	}
	want := plan.Devices{
		ByResource: map[string][]string{
			"nic.example/vf":  {"0000:03:01.2", "0000:03:01.7", "0000:03:01.1", "0000:ff:00.0"},
			"ext.example/nic": {"0000:09:00.0"},
		},
		Claimed: map[string]plan.Claimed{
			"0000:03:01.1": of("mine", "n1", "vf1"), "0000:03:01.7": of("mine", "n1", "vf7"), "0000:03:01.2": of("web-made-x1", "n1", "vf2"),
			"0000:ff:00.0": of("idle", "fabric", "vf0"), "0000:09:00.0": of("web-extended", "n1", "ext"),
		},
		Detail: "its resource claims have: ext.example/nic (1), nic.example/vf (4); device gpu of driver nic.example has no attributes k8s.cni.cncf.io/deviceID and k8s.cni.cncf.io/resourceName",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slices.Sort(o.asked)
	asked := []string{
		"GET " + podPath, "GET " + claimsPath + "idle", "GET " + claimsPath + "mine", "GET " + claimsPath + "web-extended", "GET " + claimsPath + "web-made-x1",
		"GET " + slicesPath, "GET " + slicesPath + "n1",
	}
	if diff := gocmp.Diff(asked, o.asked); diff != "" {
		t.Errorf("what was read: %s", diff)
	}
}

// TestC1_17WithoutDevices is what a pod is told whose claims give no network a device.
func TestC1_17WithoutDevices(t *testing.T) {
	static := `{"metadata":{"uid":"mirror","annotations":{"kubernetes.io/config.source":"file"}}}`
	for name, c := range map[string]struct {
		path, text string
		want       string
	}{
		"no claims":          {podPath, `{"metadata":{"uid":"u1"}}`, "it has no resource claim"},
		"static":             {podPath, static, "it has no resource claim"},
		"another pod":        {podPath, `{"metadata":{"uid":"u2"}}`, "not yet: the resource claims of pod app/web: the API has the UID u2 of that name, not u1: not available yet"},
		"a claim is missing": {claimsPath + "mine", "404", "not yet: pod app/web: resource claim mine: not available yet: as scripted"},
		"not allocated":      {claimsPath + "idle", `{}`, "its resource claims have: ext.example/nic (1), nic.example/vf (3); device gpu of driver nic.example has no attributes k8s.cni.cncf.io/deviceID and k8s.cni.cncf.io/resourceName; resource claim idle is not allocated"},
		"forbidden":          {slicesPath, "403", "not yet: pod app/web: resource claim web-made-x1: not available yet: RBAC must grant the verb list on resourceslices: as scripted"},
	} {
		t.Run(name, func(t *testing.T) {
			o := claimCluster()
			o.has[c.path] = c.text
			got, err := o.claims(t).Devices(t.Context(), claimant)
			told := got.Detail
			if errors.Is(err, gather.ErrNotYet) {
				told = "not yet: " + err.Error()
			}
			if told != c.want {
				t.Errorf("got  %s\nwant %s (%v)", told, c.want, err)
			}
		})
	}
}

// TestI5_ClaimStatus: what is written, and which failures are worth another try.
func TestI5_ClaimStatus(t *testing.T) {
	device := plan.ClaimStatus{
		Claimed:   plan.Claimed{Claim: "mine", Driver: "nic.example", Pool: "n1", Device: "vf1"},
		Interface: "net1", IPs: []string{"10.1.0.2/24", "fd00::2/64"}, MAC: "02:00:00:00:00:01",
	}
	path := claimsPath + "mine/status"
	for answer, again := range map[string]bool{"{}": false, "409": false, "403": false, "503": true, "404": true} {
		o := &objects{has: map[string]string{path: answer}}
		err := o.claims(t).Publish(t.Context(), claimant, "mine", []plan.ClaimStatus{device})
		if (err == nil) != (answer == "{}") || errors.Is(err, gather.ErrNotYet) != again {
			t.Errorf("%s: %v", answer, err)
		}
		want := []string{"PATCH " + path + ` {"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"mine","namespace":"app"},"status":{"devices":[` +
			`{"driver":"nic.example","pool":"n1","device":"vf1","networkData":{"interfaceName":"net1","ips":["10.1.0.2/24","fd00::2/64"],"hardwareAddress":"02:00:00:00:00:01"}}]}}`}
		if diff := gocmp.Diff(want, o.asked[:1], cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
}

var _ gather.Devices = Claims{}
