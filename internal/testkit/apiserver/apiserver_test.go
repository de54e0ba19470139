package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *apiserver.Server {
	t.Helper()
	s, err := apiserver.Start("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// do sends a request and returns the status and the body.
func do(t *testing.T, s *apiserver.Server, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestI2_Scripts(t *testing.T) {
	const path = "/api/v1/namespaces/shop/pods/web"
	asked := false
	for name, step := range map[string]struct {
		script func(*apiserver.Server)
		path   string
		header []string
		want   []int // one request each
	}{
		"there":         {want: []int{200}},
		"absent":        {path: path + "x", want: []int{404}},
		"unknown":       {path: "/api/v1/nodes", want: []int{404}},
		"fails twice":   {script: func(s *apiserver.Server) { s.Fail(apiserver.Failure{Code: 503, Times: 2}) }, want: []int{503, 503, 200}},
		"other path":    {script: func(s *apiserver.Server) { s.Fail(apiserver.Failure{Path: "/status", Code: 503, Times: 1}) }, want: []int{200}},
		"other method":  {script: func(s *apiserver.Server) { s.Fail(apiserver.Failure{Method: "PATCH", Code: 503, Times: 1}) }, want: []int{200}},
		"only watches":  {script: func(s *apiserver.Server) { s.Fail(apiserver.Failure{Watch: true, Code: 503, Times: 1}) }, want: []int{200}},
		"hook":          {script: func(s *apiserver.Server) { s.Fail(apiserver.Failure{Code: 500, Times: 1, Do: func() { asked = true }}) }, want: []int{500}},
		"no token":      {script: func(s *apiserver.Server) { s.RequireToken("a") }, want: []int{401}},
		"token":         {script: func(s *apiserver.Server) { s.RequireToken("a") }, header: []string{"Authorization", "Bearer a"}, want: []int{200}},
		"down":          {script: func(s *apiserver.Server) { s.Refuse() }, want: []int{0}},
		"up again":      {script: func(s *apiserver.Server) { s.Refuse(); _ = s.Accept() }, want: []int{200}},
		"CRD missing":   {script: func(s *apiserver.Server) { s.ServeNADs(false) }, path: "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", want: []int{404}},
		"CRD there":     {path: "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", want: []int{200}},
		"streams":       {script: func(s *apiserver.Server) { s.ServeStreams(false) }, path: "/api/v1/pods?watch=1&sendInitialEvents=true", want: []int{422}},
		"forgotten":     {script: func(s *apiserver.Server) { s.Forget() }, path: "/api/v1/pods?watch=1&resourceVersion=1", want: []int{410}},
		"bad selector":  {path: "/api/v1/pods?fieldSelector=a,b", want: []int{400}},
		"not our verbs": {path: path + "/log", want: []int{405}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.PutPod(pod("web", "n1"))
			if step.script != nil {
				step.script(s)
			}
			if step.path == "" {
				step.path = path
			}
			var got []int
			for range step.want {
				code, _ := do(t, s, "GET", step.path, "", step.header...)
				got = append(got, code)
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if !asked {
		t.Error("the hook did not run")
	}
}

func TestI2_LatencyAndRequests(t *testing.T) {
	s := start(t)
	s.SetLatency(30 * time.Millisecond)
	begin := time.Now()
	do(t, s, "GET", "/api/v1/pods?limit=3", "a body")
	if spent := time.Since(begin); spent < 30*time.Millisecond {
		t.Errorf("answered after %v", spent)
	}
	requests := s.Requests()
	if len(requests) != 1 || requests[0].String() != "GET /api/v1/pods" || requests[0].Query.Get("limit") != "3" || requests[0].Body != "a body" {
		t.Errorf("remembered %+v", requests)
	}
	if s.ResetRequests(); len(s.Requests()) != 0 {
		t.Error("requests are not forgotten")
	}
}

func TestI2_ListPagesAndSelects(t *testing.T) {
	s := start(t)
	for i := range 5 {
		s.PutPod(pod(fmt.Sprintf("p%d", i), []string{"n1", "n2"}[i%2]))
	}
	list := func(query, accept string) (kind string, names []string, next string) {
		_, body := do(t, s, "GET", "/api/v1/pods?"+query, "", "Accept", accept)
		var l struct {
			Kind     string
			Metadata metav1.ListMeta
			Items    []map[string]json.RawMessage
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil {
			t.Fatal(err)
		}
		for _, item := range l.Items {
			var m metav1.ObjectMeta
			if err := json.Unmarshal(item["metadata"], &m); err != nil {
				t.Fatal(err)
			}
			if _, full := item["spec"]; full != (l.Kind == "PodList") {
				t.Errorf("%s holds a spec: %v", l.Kind, full)
			}
			names = append(names, m.Name)
		}
		return l.Kind, names, l.Metadata.Continue
	}
	const partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for name, c := range map[string]struct {
		query, accept string
		kind          string
		names         []string
		next          string
	}{
		"all":       {"", "application/json", "PodList", []string{"p0", "p1", "p2", "p3", "p4"}, ""},
		"metadata":  {"", partial, "PartialObjectMetadataList", []string{"p0", "p1", "p2", "p3", "p4"}, ""},
		"node":      {"fieldSelector=spec.nodeName%3Dn2", "", "PodList", []string{"p1", "p3"}, ""},
		"page":      {"limit=2", "", "PodList", []string{"p0", "p1"}, "shop/p1"},
		"next page": {"limit=4&continue=shop/p1", "", "PodList", []string{"p2", "p3", "p4"}, ""},
		"version 0": {"limit=2&resourceVersion=0", "", "PodList", []string{"p0", "p1", "p2", "p3", "p4"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kind, names, next := list(c.query, c.accept)
			if diff := cmp.Diff([]any{c.kind, c.names, c.next}, []any{kind, names, next}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestI2_WatchTellsChanges follows one watch over every kind of change, a cut, and
// resumption.
func TestI2_WatchTellsChanges(t *testing.T) {
	s := start(t)
	s.PutPod(pod("old", "n1"))
	next := follow(t, s, "sendInitialEvents=true&fieldSelector=spec.nodeName%3Dn1")
	expect := func(want string) string {
		t.Helper()
		got, version := next()
		if got != want {
			t.Fatalf("watch told %q, want %q", got, want)
		}
		return version
	}
	expect("ADDED old")
	expect("BOOKMARK ")
	s.PutPod(pod("new", "n2")) // elsewhere: silent
	s.PutPod(pod("new", "n1"))
	expect("ADDED new")
	s.PutPod(pod("new", "n1"))
	expect("MODIFIED new")
	s.PutPod(pod("new", "n2"))
	expect("DELETED new")
	s.DeletePod("shop", "absent") // silent
	s.DeletePod("shop", "old")
	version := expect("DELETED old")
	s.CutWatches()
	expect("end")

	s.PutPod(pod("later", "n1"))
	next = follow(t, s, "resourceVersion="+version)
	expect("ADDED later")
	s.Forget()
	s.PutPod(pod("later", "n1"))
	s.Refuse()
	for got, _ := next(); got != "end"; got, _ = next() {
	}
}

// follow starts a watch of pods; each call of next waits for one event.
func follow(t *testing.T, s *apiserver.Server, query string) (next func() (what, version string)) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/api/v1/pods?watch=true&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewReader(answer.Body)
	return func() (string, string) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return "end", ""
		}
		var e struct {
			Type   string
			Object struct{ Metadata metav1.ObjectMeta }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		return e.Type + " " + e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion
	}
}

func TestI2_PatchMergesUnderPreconditions(t *testing.T) {
	const merge = "application/merge-patch+json"
	for name, c := range map[string]struct {
		path, kind, body string
		code             int
		changed          bool
	}{
		"annotation":    {"web/status", merge, `{"metadata":{"uid":"u1","annotations":{"a":"1"}}}`, 200, true},
		"other UID":     {"web/status", merge, `{"metadata":{"uid":"u2","annotations":{"a":"1"}}}`, 409, false},
		"other version": {"web/status", merge, `{"metadata":{"resourceVersion":"77","annotations":{"a":"1"}}}`, 409, false},
		"absent":        {"wob/status", merge, `{}`, 404, false},
		"content type":  {"web/status", "application/json", `{}`, 415, false},
		"broken":        {"web/status", merge, `{`, 400, false},
		"not status":    {"web", merge, `{}`, 405, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			p := pod("web", "n1")
			p.UID, p.Annotations = "u1", map[string]string{"b": "2"}
			before := s.PutPod(p)
			code, _ := do(t, s, "PATCH", "/api/v1/namespaces/shop/pods/"+c.path, c.body, "Content-Type", c.kind)
			if code != c.code {
				t.Errorf("status %d, want %d", code, c.code)
			}
			p.Annotations["a"] = "1"
			want := before
			if c.changed {
				other := start(t)
				other.PutPod(pod("filler", "n1")) // so that versions are equal
				want = other.PutPod(p)
			}
			if diff := cmp.Diff(want, s.Pod("shop", "web")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestI2_StatusPatchLeavesTheSpec(t *testing.T) {
	s := start(t)
	s.PutPod(pod("web", "n1"))
	do(t, s, "PATCH", "/api/v1/namespaces/shop/pods/web/status", `{"spec":{"nodeName":"n2"},"status":{"phase":"Failed"}}`,
		"Content-Type", "application/merge-patch+json")
	got := s.Pod("shop", "web")
	if node := got["spec"].(apiserver.Object)["nodeName"]; node != "n1" {
		t.Errorf("spec.nodeName became %v", node)
	}
	if phase := got["status"].(apiserver.Object)["phase"]; phase != "Failed" {
		t.Errorf("status.phase is %v", phase)
	}
}

func TestI2_EventsAreCreatedAndPatched(t *testing.T) {
	s := start(t)
	do(t, s, "POST", "/api/v1/namespaces/shop/events", `{"metadata":{"namespace":"shop","name":"e"},"count":1}`)
	if code, _ := do(t, s, "POST", "/api/v1/namespaces/shop/events", `{"metadata":{"namespace":"shop","name":"e"}}`); code != http.StatusConflict {
		t.Errorf("created twice: %d", code)
	}
	do(t, s, "PATCH", "/api/v1/namespaces/shop/events/e", `{"count":2}`, "Content-Type", "application/strategic-merge-patch+json")
	want := []apiserver.Object{{
		"apiVersion": "v1", "kind": "Event", "count": json.Number("2"),
		"metadata": apiserver.Object{"namespace": "shop", "name": "e", "resourceVersion": "3", "uid": "00000000-0000-4000-8000-000000000001"},
	}}
	if diff := cmp.Diff(want, s.Events()); diff != "" {
		t.Error(diff)
	}
	if s.ExpireEvents(); s.Events() != nil {
		t.Error("events did not expire")
	}
}

func TestI2_UIDsLastUntilDeletion(t *testing.T) {
	s := start(t)
	uid := func(o apiserver.Object) any { return o["metadata"].(apiserver.Object)["uid"] }
	first := uid(s.PutPod(pod("web", "n1")))
	if again := uid(s.PutPod(pod("web", "n2"))); again != first {
		t.Errorf("an update changed the UID from %v to %v", first, again)
	}
	s.DeletePod("shop", "web")
	if again := uid(s.PutPod(pod("web", "n1"))); again == first {
		t.Error("a new pod has the UID of a deleted one")
	}
}

func TestI2_KubeconfigNamesServerAndTokenFile(t *testing.T) {
	s, dir := start(t), t.TempDir()
	s.RequireToken("secret")
	path, err := s.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"server": "`+s.URL()+`"`) || strings.Contains(string(text), "secret") {
		t.Errorf("kubeconfig:\n%s", text)
	}
	if token, _ := os.ReadFile(filepath.Join(dir, "token")); string(token) != "secret" {
		t.Errorf("token file holds %q", token)
	}
}

func TestI2_TLSUnderItsOwnAuthority(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			s, err := apiserver.StartTLS(host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			trusted := x509.NewCertPool()
			trusted.AppendCertsFromPEM(s.CA())
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
			defer transport.CloseIdleConnections()
			answer, err := (&http.Client{Transport: transport}).Get(s.URL() + "/api/v1/pods")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Error(answer.Status)
			}
		})
	}
}

func TestI2_ClientCertificates(t *testing.T) {
	s, err := apiserver.StartTLS("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	dir := t.TempDir()
	s.RequireUser("node")
	path, err := s.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "client.pem")
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), file) != 2 {
		t.Errorf("%v: kubeconfig:\n%s", err, text)
	}
	node, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Certificate("other")
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(s.CA())
	for name, c := range map[string]struct {
		pem  []byte
		want int
		user string
	}{"its own": {node, 200, "node"}, "another": {other, 401, "other"}, "none": {nil, 401, ""}} {
		config := &tls.Config{RootCAs: trusted}
		if c.pem != nil {
			pair, err := tls.X509KeyPair(c.pem, c.pem)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		s.ResetRequests()
		transport := &http.Transport{TLSClientConfig: config}
		answer, err := (&http.Client{Transport: transport}).Get(s.URL() + "/api/v1/pods")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		transport.CloseIdleConnections()
		if user := s.Requests()[0].User; answer.StatusCode != c.want || user != c.user {
			t.Errorf("%s: %s for %q, want %d for %q", name, answer.Status, user, c.want, c.user)
		}
	}
}
