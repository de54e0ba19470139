package lab

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

func newPKI(t *testing.T) pki {
	t.Helper()
	p := pki(t.TempDir())
	if err := p.create(map[string]string{"node1": "10.99.0.11"}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestI3_PKISaysWhoEachClientIs: the authorizers know a client by user and group, and a
// client knows a server by host; each is signed by its authority, and by no other.
func TestI3_PKISaysWhoEachClientIs(t *testing.T) {
	p := newPKI(t)
	type identity struct {
		Authority, User string
		Groups, Hosts   []string
	}
	want := map[string]identity{
		"ca":                       {Authority: "ca", User: "lab-ca"},
		"front-proxy-ca":           {Authority: "front-proxy-ca", User: "lab-front-proxy-ca"},
		"front-proxy-client":       {Authority: "front-proxy-ca", User: "front-proxy-client"},
		"admin":                    {Authority: "ca", User: "lab-admin", Groups: []string{"system:masters"}},
		"apiserver-kubelet-client": {Authority: "ca", User: "lab-apiserver", Groups: []string{"system:masters"}},
		"controller-manager":       {Authority: "ca", User: "system:kube-controller-manager"},
		"scheduler":                {Authority: "ca", User: "system:kube-scheduler"},
		"kube-proxy":               {Authority: "ca", User: "system:kube-proxy"},
		"node1":                    {Authority: "ca", User: "system:node:node1", Groups: []string{"system:nodes"}},
		"node1-serving":            {Authority: "ca", User: "node1", Hosts: []string{"node1", "10.99.0.11"}},
		"apiserver": {Authority: "ca", User: "kube-apiserver", Hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"10.99.0.1", "10.96.0.1", "127.0.0.1",
		}},
	}
	got := map[string]identity{}
	for name := range want {
		c := must(cert.CertsFromFile(p.path(name + ".crt")))[0]
		id := identity{User: c.Subject.CommonName, Groups: c.Subject.Organization, Hosts: c.DNSNames}
		for _, ip := range c.IPAddresses {
			id.Hosts = append(id.Hosts, ip.String())
		}
		for _, authority := range []string{"ca", "front-proxy-ca"} {
			roots := must(cert.NewPool(p.path(authority + ".crt")))
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
				id.Authority += authority
			}
		}
		got[name] = id
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestI3_KubeconfigIsWhole: it works where the files of the keys are not.
func TestI3_KubeconfigIsWhole(t *testing.T) {
	p := newPKI(t)
	config := must(clientcmd.RESTConfigFromKubeConfig(must(p.kubeconfig("node1", "https://10.99.0.1:6443"))))
	if err := os.RemoveAll(string(p)); err != nil {
		t.Fatal(err)
	}
	pair := must(tls.X509KeyPair(config.CertData, config.KeyData))
	got := fmt.Sprint(config.Host, " ", pair.Leaf.Subject.CommonName, " ", pair.Leaf.NotAfter.After(time.Now().AddDate(0, 11, 0)),
		" ", x509.NewCertPool().AppendCertsFromPEM(config.CAData))
	if want := "https://10.99.0.1:6443 system:node:node1 true true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
