package kube

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

var (
	_ gather.Pods     = (*Client)(nil)
	_ gather.Networks = (*Client)(nil)
	_ gather.Pods     = (*Watch)(nil)
	_ gather.Networks = (*Watch)(nil)
)

var refA = netspec.Ref{Namespace: "shop", Name: "net-a"}

// wantWeb and wantNetA are what is kept of podWeb and of nadMeta("net-a").
func wantWeb(uid string) gather.Pod {
	return gather.Pod{Subject: plan.Subject{
		Pod:         plan.Pod{Namespace: "shop", Name: "web", UID: uid},
		Annotations: map[string]string{netspec.AnnotationNetworks: "net-a", netspec.AnnotationConfigSource: "api"},
	}}
}

func wantNetA(config string) plan.NAD {
	return plan.NAD{Ref: refA, Config: config, Annotations: map[string]string{netspec.AnnotationResourceName: "vendor.example/nic"}}
}

func TestT22LiveReadsTheIdentityOfNow(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	static := podWeb()
	static.Name, static.Annotations = "web-node1", map[string]string{
		netspec.AnnotationConfigSource: "file", annotationConfigHash: "h", "other": "x",
	}
	uid := uidOf(s.PutPod(static))
	got, err := c.Live(t.Context(), "shop", "web-node1")
	want := gather.Pod{Static: true, Subject: plan.Subject{
		Pod:         plan.Pod{Namespace: "shop", Name: "web-node1", UID: uid},
		Annotations: map[string]string{netspec.AnnotationConfigSource: "file", annotationConfigHash: "h"},
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("static pod: %v\n%s", err, diff)
	}

	first := uidOf(s.PutPod(podWeb()))
	s.DeletePod("shop", "web")
	second := uidOf(s.PutPod(podWeb()))
	got, err = c.Live(t.Context(), "shop", "web")
	if diff := cmp.Diff(wantWeb(second), got); err != nil || diff != "" || first == second {
		t.Errorf("recreated pod: %v\n%s", err, diff)
	}
	if _, ok := c.Cached("shop", "web"); ok {
		t.Error("a client without a cache has a cached pod")
	}
}

func TestT22LiveAsksForMetadataOnly(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	s.PutPod(podWeb())
	if _, err := c.Live(t.Context(), "shop", "web"); err != nil {
		t.Fatal(err)
	}
	r := s.Requests()[0]
	if accept := r.Header.Get("Accept"); len(s.Requests()) != 1 || !strings.Contains(accept, "as=PartialObjectMetadata") {
		t.Errorf("%v with Accept %q", s.Requests(), accept)
	}
	if agent := r.Header.Get("User-Agent"); agent != "multus-test" {
		t.Errorf("user agent %q", agent)
	}
}

func TestI2_NetworkIsRead(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	s.PutNAD(nadMeta("net-a"), `{"type":"macvlan"}`)
	got, err := c.Network(t.Context(), refA)
	if diff := cmp.Diff(wantNetA(`{"type":"macvlan"}`), got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestT23FailedReads tells for each way in which a read can fail whether the object
// does not exist or may be there, and that the line names object and cause.
func TestT23FailedReads(t *testing.T) {
	for name, c := range map[string]struct {
		script   func(*apiserver.Server)
		is       error
		pod, nad string // parts of the messages
	}{
		"not found":    {func(*apiserver.Server) {}, gather.ErrNotFound, "pod shop/web: not found", "NetworkAttachmentDefinition shop/net-a: not found"},
		"server error": {fail(http.StatusInternalServerError), gather.ErrNotYet, "Internal Server Error", "Internal Server Error"},
		"unavailable":  {fail(http.StatusServiceUnavailable), gather.ErrNotYet, "Service Unavailable", "Service Unavailable"},
		"throttled":    {fail(http.StatusTooManyRequests), gather.ErrNotYet, "Too Many Requests", "Too Many Requests"},
		"unauthorized": {fail(http.StatusUnauthorized), gather.ErrNotYet, "does not accept the token or certificate", "does not accept"},
		"forbidden":    {fail(http.StatusForbidden), gather.ErrNotYet, "RBAC must grant the verb get on pods", "RBAC must grant the verb get on network-attachment-definitions"},
		"down":         {(*apiserver.Server).Refuse, gather.ErrNotYet, "connection refused", "connection refused"},
		"slow":         {func(s *apiserver.Server) { s.SetLatency(time.Minute) }, gather.ErrNotYet, "context deadline exceeded", "context deadline exceeded"},
		"no CRD": {
			func(s *apiserver.Server) { s.ServeNADs(false) }, nil, "",
			"the CustomResourceDefinition network-attachment-definitions.k8s.cni.cncf.io must be installed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			client := connect(t, s)
			c.script(s)
			ctx := within(t, 300*time.Millisecond)
			_, err := client.Network(ctx, refA)
			if is := c.is; is == nil && !errors.Is(err, gather.ErrNotYet) || !strings.Contains(err.Error(), c.nad) || !errors.Is(err, is) && is != nil {
				t.Errorf("Network: %v", err)
			}
			_, err = client.Live(ctx, "shop", "web")
			if c.is != nil && (!errors.Is(err, c.is) || !strings.Contains(err.Error(), c.pod)) {
				t.Errorf("Live: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func fail(code int) func(*apiserver.Server) {
	return func(s *apiserver.Server) { s.Fail(apiserver.Failure{Code: code, Times: 99}) }
}

func TestT23SlowAPIWorksAtDefaults(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	uid := uidOf(s.PutPod(podWeb()))
	s.SetLatency(2 * time.Second)
	got, err := c.Live(t.Context(), "shop", "web")
	if diff := cmp.Diff(wantWeb(uid), got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestT23TokenFileIsReadAgainAfter401(t *testing.T) {
	s, dir := startTLS(t, "127.0.0.1"), t.TempDir()
	s.RequireToken("first")
	c := connectIn(t, s, dir)
	testRotation(t, s, c, s.RequireToken, func() error {
		return os.WriteFile(filepath.Join(dir, "token"), []byte("second\n"), 0o600)
	})
}

func TestT23TokenInKubeconfigIsReadAgainAfter401(t *testing.T) {
	s, dir := startTLS(t, "127.0.0.1"), t.TempDir()
	path, err := s.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(token string) error {
		text := strings.Replace(string(template), `"user": {}`, `"user": {"token": "`+token+`"}`, 1)
		return os.WriteFile(path, []byte(text), 0o600)
	}
	if err := write("first"); err != nil {
		t.Fatal(err)
	}
	s.RequireToken("first")
	c, err := Connect(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	testRotation(t, s, c, s.RequireToken, func() error { return write("second") })
}

func TestT23ServiceAccountTokenIsReadAgainAfter401(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			s, dir := startTLS(t, host), t.TempDir()
			write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
			address, err := url.Parse(s.URL())
			if err := errors.Join(err, write("ca.crt", string(s.CA())), write("token", "first")); err != nil {
				t.Fatal(err)
			}
			s.RequireToken("first")
			c, err := Connect(Options{Host: address.Hostname(), Port: address.Port(), ServiceAccount: dir})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			testRotation(t, s, c, s.RequireToken, func() error { return write("token", "second") })
		})
	}
}

func testRotation(t *testing.T, s *apiserver.Server, c *Client, require func(string), rotate func() error) {
	t.Helper()
	s.PutPod(podWeb())
	if _, err := c.Live(t.Context(), "shop", "web"); err != nil {
		t.Fatalf("first credentials: %v", err)
	}
	require("second")
	if _, err := c.Live(t.Context(), "shop", "web"); !apierrors.IsUnauthorized(err) || !errors.Is(err, gather.ErrNotYet) {
		t.Fatalf("refused credentials: %v", err)
	}
	if err := rotate(); err != nil {
		t.Fatal(err)
	}
	// The 401 above dropped those that were read before.
	if _, err := c.Live(t.Context(), "shop", "web"); err != nil {
		t.Errorf("second credentials: %v", err)
	}
}

// TestT23CertificateComesLateAndChanges: it is a link that moves, and a watch keeps its
// connection busy.
func TestT23CertificateComesLateAndChanges(t *testing.T) {
	s, dir := startTLS(t, "127.0.0.1"), t.TempDir()
	link := filepath.Join(dir, "client.pem")
	issue := func(name string) error {
		pem, err := s.Certificate(name)
		_ = os.Remove(link) // the first time there is none
		return errors.Join(err, os.WriteFile(filepath.Join(dir, name), pem, 0o600), os.Symlink(name, link))
	}
	s.RequireUser("first")
	path, err := s.Kubeconfig(dir)
	if err := errors.Join(err, os.Remove(link)); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = c.Live(t.Context(), "shop", "web")
	if !errors.Is(err, gather.ErrNotYet) || !strings.Contains(err.Error(), link) {
		t.Fatalf("without a certificate: %v", err)
	}
	if err := issue("first"); err != nil {
		t.Fatal(err)
	}
	w := watchNode(t, c, "n1")
	eventually(t, "sync", w.Synced)
	testRotation(t, s, c, s.RequireUser, func() error { return issue("second") })
}

func TestT23URLsOfAllKinds(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			s := startTLS(t, host)
			c := connect(t, s)
			uid := uidOf(s.PutPod(podWeb()))
			w := watchNode(t, c, "n1")
			eventually(t, "sync", w.Synced)
			got, err := c.Live(t.Context(), "shop", "web")
			if diff := cmp.Diff(wantWeb(uid), got); err != nil || diff != "" {
				t.Errorf("%s: %v\n%s", s.URL(), err, diff)
			}
		})
	}
}

func TestI2_CallerGivesUp(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	s.SetLatency(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := c.Live(ctx, "shop", "web"); !errors.Is(err, context.Canceled) || !errors.Is(err, gather.ErrNotYet) {
		t.Errorf("%v", err)
	}
}
