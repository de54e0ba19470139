package approver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func signingRequest(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// request is one that a kubelet makes for its node n1, as change leaves it.
func request(t *testing.T, change func(*certificatesv1.CertificateSigningRequestSpec, *x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	seconds := int32(600)
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "multus-1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: "kubernetes.io/kube-apiserver-client", ExpirationSeconds: &seconds,
			Usages:   []certificatesv1.KeyUsage{"client auth", "digital signature"},
			Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"},
		},
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:multus:n1", Organization: []string{"system:multus"}}}
	if change != nil {
		change(&r.Spec, template)
	}
	if r.Spec.Request == nil {
		r.Spec.Request = signingRequest(t, template)
	}
	return r
}

func TestC1_16Judge(t *testing.T) {
	type spec = certificatesv1.CertificateSigningRequestSpec
	type asked = x509.CertificateRequest
	year := int32(365 * 24 * 3600)
	more := year + 1
	for name, tt := range map[string]struct {
		change func(*spec, *asked)
		want   string // "" for approved
	}{
		"the kubelet": {nil, ""},
		"an earlier certificate": {func(s *spec, _ *asked) {
			s.Username, s.Groups = "system:multus:n1", []string{"system:multus", "system:authenticated"}
		}, ""},
		"a year":                   {func(s *spec, _ *asked) { s.ExpirationSeconds = &year }, ""},
		"more than a year":         {func(s *spec, _ *asked) { s.ExpirationSeconds = &more }, "expirationSeconds must be there, and 31536000 at most"},
		"for ever":                 {func(s *spec, _ *asked) { s.ExpirationSeconds = nil }, "expirationSeconds must be there, and 31536000 at most"},
		"somebody":                 {func(s *spec, _ *asked) { s.Username = "jane" }, `the user "jane" is no node: want system:node:NODE or system:multus:NODE`},
		"a service account":        {func(s *spec, _ *asked) { s.Username = "system:serviceaccount:kube-system:multus" }, `the user "system:serviceaccount:kube-system:multus" is no node: want system:node:NODE or system:multus:NODE`},
		"a node without a name":    {func(s *spec, a *asked) { s.Username, a.Subject.CommonName = "system:node:", "system:multus:" }, `the user "system:node:" is no node: want system:node:NODE or system:multus:NODE`},
		"another node":             {func(s *spec, _ *asked) { s.Username = "system:node:n2" }, `the user "system:node:n2" asks for a certificate of "system:multus:n1", not of its own node`},
		"a node whose name begins": {func(_ *spec, a *asked) { a.Subject.CommonName = "system:multus:n11" }, `the user "system:node:n1" asks for a certificate of "system:multus:n11", not of its own node`},
		"another group":            {func(s *spec, _ *asked) { s.Groups = append(s.Groups, "system:masters") }, `the user is in the group "system:masters": want none but system:nodes, system:multus, system:authenticated`},
		"administrators":           {func(_ *spec, a *asked) { a.Subject.Organization = []string{"system:multus", "system:masters"} }, `the organizations are ["system:multus" "system:masters"]: want "system:multus" alone`},
		"no organization":          {func(_ *spec, a *asked) { a.Subject.Organization = nil }, `the organizations are []: want "system:multus" alone`},
		"further names":            {func(_ *spec, a *asked) { a.DNSNames = []string{"api.example"} }, "the request has further names: want none"},
		"a server":                 {func(s *spec, _ *asked) { s.Usages = append(s.Usages, "server auth") }, `the usages are ["client auth" "digital signature" "server auth"]: want ["digital signature" "client auth"]`},
		"one usage twice":          {func(s *spec, _ *asked) { s.Usages = []certificatesv1.KeyUsage{"client auth", "client auth"} }, `the usages are ["client auth" "client auth"]: want ["digital signature" "client auth"]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, tt.change)
			if !Ours(r) {
				t.Error("not ours")
			}
			got := ""
			if err := Judge(r); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestC1_16RequestsOfOthers(t *testing.T) {
	forged := func(t *testing.T) []byte {
		block, _ := pem.Decode(request(t, nil).Spec.Request)
		block.Bytes[len(block.Bytes)-1] ^= 1 // of the signature
		return pem.EncodeToMemory(block)
	}
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"another signer": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/kubelet-serving" },
		"another name": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = signingRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}})
		},
		"no PEM": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("?") },
		"no request in PEM": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = bytes.ReplaceAll(r.Spec.Request, []byte("CERTIFICATE REQUEST"), []byte("CERTIFICATE"))
		},
		"not of the key": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = forged(t) },
		"approved": func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Approved"}}
		},
		"signed": func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, nil)
			change(r)
			if Ours(r) {
				t.Error("ours")
			}
		})
	}
}

// cluster is an API server with approvers.
type cluster struct {
	check.T
	*apiserver.Server
	stop func() // ends the approvers
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := apiserver.StartTLS("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &cluster{T: check.T{T: t}, Server: s}
}

func (c *cluster) run(approvers int) {
	c.Helper()
	cfg := &rest.Config{Host: c.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range approvers {
		a, err := New(cfg, slog.New(slog.DiscardHandler))
		c.Must(err)
		running.Go(func() { a.Run(ctx) })
	}
	c.stop = func() { cancel(); running.Wait() }
	c.Cleanup(c.stop)
}

// decision is what was decided about the request, and the events about it.
func (c *cluster) decision(name string) (got []string) {
	c.Helper()
	c.Eventually("a decision about "+name, func() bool {
		got = nil
		for _, r := range c.CSRs() {
			status, _ := r["status"].(apiserver.Object)
			conditions, _ := status["conditions"].([]any)
			for _, condition := range conditions {
				got = append(got, strings.Join([]string{field(condition, "type"), field(condition, "status"), field(condition, "reason"), field(condition, "message")}, " "))
			}
		}
		return len(got) > 0
	})
	c.Eventually("an event about "+name, func() bool { return len(c.Events()) > 0 })
	for _, e := range c.Events() {
		about := e["involvedObject"].(apiserver.Object)
		got = append(got, strings.Join([]string{field(e, "type"), field(e, "reason"), field(about, "kind"), field(about, "name"), field(e["metadata"], "namespace")}, " "))
	}
	return got
}

func field(o any, key string) string { s, _ := o.(apiserver.Object)[key].(string); return s }

func TestC1_16Approved(t *testing.T) {
	c := newCluster(t)
	c.run(1)
	c.PutCSR(request(t, nil))
	c.Same("decision", []string{
		"Approved True CSRApproved a node's own certificate for Multus",
		"Normal CSRApproved CertificateSigningRequest multus-1 default",
	}, c.decision("multus-1"))
}

// TestC1_16DenialLasts: v4 wrote it where the API server does not look for it.
func TestC1_16DenialLasts(t *testing.T) {
	c := newCluster(t)
	c.run(1)
	foreign := request(t, nil)
	foreign.Name, foreign.Spec.SignerName = "foreign", "kubernetes.io/kubelet-serving"
	c.PutCSR(foreign)
	c.PutCSR(request(t, func(s *certificatesv1.CertificateSigningRequestSpec, _ *x509.CertificateRequest) {
		s.Username = "system:node:n2"
	}))
	c.Same("decision", []string{
		`Denied True CSRDenied the user "system:node:n2" asks for a certificate of "system:multus:n1", not of its own node`,
		"Warning CSRDenied CertificateSigningRequest multus-1 default",
	}, c.decision("multus-1"))
}

// TestC1_16OneDecision: approvers that meet at one request, and an API server that
// fails, make one decision and one event.
func TestC1_16OneDecision(t *testing.T) {
	const approval = "/certificatesigningrequests/multus-1/approval"
	for name, code := range map[string]int{"conflict": http.StatusConflict, "failure": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.Fail(apiserver.Failure{Method: http.MethodPut, Path: approval, Code: code, Times: 3})
			c.run(3)
			c.PutCSR(request(t, nil))
			c.decision("multus-1")
			c.stop()
			c.Same("decision", []string{
				"Approved True CSRApproved a node's own certificate for Multus",
				"Normal CSRApproved CertificateSigningRequest multus-1 default",
			}, c.decision("multus-1"))
		})
	}
}

// TestC1_16APIAway: a request is decided about when the API is back.
func TestC1_16APIAway(t *testing.T) {
	c := newCluster(t)
	c.Refuse()
	c.run(1)
	c.PutCSR(request(t, nil))
	c.Must(c.Accept())
	if got := c.decision("multus-1"); len(got) != 2 {
		t.Errorf("decision %q", got)
	}
}
