package nodecert_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/multus-thick/multus/internal/approver"
	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/nodecert"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node n1 with a kubelet's kubeconfig, and its cluster.
type node struct {
	check.T
	*apiserver.Server
	dir string
}

const kubelet, multus = "system:node:n1", "system:multus:n1"

func newNode(t *testing.T) *node {
	t.Helper()
	s, err := apiserver.StartTLS("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	n := &node{check.T{T: t}, s, t.TempDir()}
	s.RequireUser(kubelet)
	_, err = s.Kubeconfig(n.dir)
	n.Must(err)
	s.RequireUser("")
	return n
}

// background runs something until the test's end, or until stop.
func (n *node) background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop = func() { cancel(); running.Wait() }
	n.Cleanup(stop)
	return stop
}

func (n *node) approve() {
	n.Helper()
	a, err := approver.New(n.admin(), slog.New(slog.DiscardHandler))
	n.Must(err)
	n.background(a.Run)
}

func (n *node) admin() *rest.Config {
	return &rest.Config{Host: n.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: n.CA()}}
}

func (n *node) options() nodecert.Options {
	return nodecert.Options{
		Node: "n1", Bootstrap: filepath.Join(n.dir, "kubeconfig"), Dir: filepath.Join(n.dir, "certs"), Duration: 10 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
}

func (n *node) keep() (keeper *nodecert.Keeper, stop func()) {
	n.Helper()
	keeper, err := nodecert.New(n.options())
	n.Must(err)
	return keeper, n.background(keeper.Run)
}

func (n *node) current() string { return filepath.Join(n.dir, "certs", "multus-client-current.pem") }

// leaf is the current certificate.
func (n *node) leaf() (*x509.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(n.current(), n.current())
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(pair.Certificate[0])
}

// askers are the users who asked for certificates, in their order.
func (n *node) askers() (users []string) {
	for _, r := range n.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/certificatesigningrequests") {
			users = append(users, r.User)
		}
	}
	return users
}

// asked waits until so many certificates were asked for, and the last is in place.
func (n *node) asked(times int) {
	n.Helper()
	n.Eventually("certificates are asked for", func() bool { return len(n.askers()) >= times })
	n.Eventually("the last one is in place", func() bool {
		all := n.CSRs()
		status, _ := all[len(all)-1]["status"].(apiserver.Object)
		signed, _ := status["certificate"].(string)
		certificate, err := base64.StdEncoding.DecodeString(signed)
		stored, readErr := os.ReadFile(n.current())
		return errors.Join(err, readErr) == nil && signed != "" && bytes.HasPrefix(stored, certificate)
	})
}

// removals starts to count how often the current file goes away. The count is taken once.
func (n *node) removals() (count func() int) {
	n.Helper()
	watcher, err := fsnotify.NewWatcher()
	n.Must(err)
	n.Cleanup(func() { watcher.Close() })
	n.Must(watcher.Add(filepath.Dir(n.current())))
	seen := make(chan int, 1)
	go func() {
		gone := 0
		for e := range watcher.Events {
			if e.Name == n.current() && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
				gone++
			}
			if filepath.Base(e.Name) == "end" {
				break
			}
		}
		seen <- gone
	}()
	return func() int {
		n.Must(os.WriteFile(filepath.Join(filepath.Dir(n.current()), "end"), nil, 0o600)) // after all else
		return <-seen
	}
}

func TestC1_16CertificateIsAskedFor(t *testing.T) {
	n := newNode(t)
	n.approve()
	keeper, _ := n.keep()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	leaf, err := n.leaf()
	n.Must(err)
	n.Same("subject", "CN=system:multus:n1,O=system:multus", leaf.Subject.String())
	spec := n.CSRs()[0]["spec"].(apiserver.Object)
	delete(spec, "request")
	n.Same("request", apiserver.Object{
		"signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": json.Number("600"), "usages": []any{"digital signature", "client auth"},
		"username": kubelet, "groups": []any{"system:authenticated"},
	}, spec)
	info, err := os.Stat(n.current())
	n.Must(err)
	n.Same("mode", "-rw-------", info.Mode().String())
	info, err = os.Stat(filepath.Dir(n.current()))
	n.Must(err)
	n.Same("its folder's mode", "drwx------", info.Mode().String())
}

// TestC1_16RenewedByItself: every certificate asks for the next, the file is whole at
// each instant, and old ones do not pile up.
func TestC1_16RenewedByItself(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.SignFor(5 * time.Second)
	n.approve()
	keeper, _ := n.keep()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	removals := n.removals()
	n.asked(3)
	n.Same("moments without the file", 0, removals())
	n.Same("askers", []string{kubelet, multus, multus}, n.askers()[:3])
	n.Eventually("the folder holds the current link, its file, and the one before", func() bool {
		pairs, err := filepath.Glob(filepath.Join(n.dir, "certs", "*.pem"))
		return err == nil && len(pairs) == 3
	})
	to, err := os.Readlink(n.current())
	n.Must(err)
	if filepath.Base(to) != to {
		t.Errorf("the link leads to %s: want a name that holds wherever the folder is mounted", to)
	}
	n.Same("problem", nil, keeper.Problem())
}

// TestC1_16BootstrapWhereTheCertificateIsRefused: the cluster has a new authority.
func TestC1_16BootstrapWhereTheCertificateIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.SignFor(5 * time.Second)
	n.approve()
	keeper, _ := n.keep()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	n.Fail(apiserver.Failure{Method: http.MethodPost, Path: "/certificatesigningrequests", Code: http.StatusUnauthorized, Times: 1})
	n.asked(3)
	n.Same("askers", []string{kubelet, multus, kubelet}, n.askers()[:3])
}

// TestC1_16StartedWithWhatIsNoGood: whatever lies in the folder, a certificate comes.
func TestC1_16StartedWithWhatIsNoGood(t *testing.T) {
	for name, put := range map[string]func(*node){
		"an empty file":   func(n *node) { n.Must(os.WriteFile(n.current(), nil, 0o600)) },
		"a damaged file":  func(n *node) { n.Must(os.WriteFile(n.current(), []byte("-----BEGIN CERTIFICATE-----\n"), 0o600)) },
		"a dangling link": func(n *node) { n.Must(os.Symlink("absent.pem", n.current())) },
		"a link left over": func(n *node) {
			n.Must(os.Symlink("absent.pem", filepath.Join(n.dir, "certs", "multus-client-updated.pem")))
		},
		"another node's": func(n *node) {
			pem, err := n.Certificate("system:multus:n2")
			n.Must(errors.Join(err, os.WriteFile(n.current(), pem, 0o600)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.Must(os.Mkdir(filepath.Join(n.dir, "certs"), 0o755))
			put(n)
			n.approve()
			keeper, _ := n.keep()
			n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
			leaf, err := n.leaf()
			n.Must(err)
			n.Same("subject", "CN=system:multus:n1,O=system:multus", leaf.Subject.String())
		})
	}
}

// TestC1_16RestartedWithAGoodOne asks for none.
func TestC1_16RestartedWithAGoodOne(t *testing.T) {
	n := newNode(t)
	n.approve()
	keeper, stop := n.keep()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	stop()
	n.Refuse()
	again, _ := n.keep()
	n.Eventually("it is taken over", func() bool { return again.Problem() == nil })
	n.Same("askers", []string{kubelet}, n.askers())
}

// TestC1_16DamageIsPutRight: the pair in memory is still good, and readers may come.
func TestC1_16DamageIsPutRight(t *testing.T) {
	n := newNode(t)
	n.approve()
	keeper, _ := n.keep()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	before, err := os.ReadFile(n.current())
	n.Must(err)
	for name, damage := range map[string]func() error{
		"emptied":  func() error { return os.Truncate(n.current(), 0) },
		"removed":  func() error { return os.Remove(n.current()) },
		"all gone": func() error { return os.RemoveAll(filepath.Dir(n.current())) },
	} {
		n.Must(damage())
		n.Eventually(name+", and there again", func() bool {
			after, err := os.ReadFile(n.current())
			return err == nil && string(after) == string(before)
		})
	}
	n.Same("askers", []string{kubelet}, n.askers())
}

// TestC1_16SomebodyElseRenews: nobody approves what is asked for, and yet a pair that
// comes into the folder counts, what happens to it is put right, and no more is asked.
func TestC1_16SomebodyElseRenews(t *testing.T) {
	n := newNode(t)
	given := make(chan struct{})
	o := n.options()
	o.Log = slog.New(slog.NewTextHandler(writer(func(line []byte) {
		if bytes.Contains(line, []byte("the request is given up")) {
			close(given)
		}
	}), nil))
	keeper, err := nodecert.New(o)
	n.Must(err)
	stop := n.background(keeper.Run)
	n.Eventually("it asks", func() bool { return len(n.CSRs()) > 0 })
	put := func(pem []byte) {
		t.Helper()
		n.Must(os.MkdirAll(filepath.Dir(n.current()), 0o755))
		n.Must(atomicfile.Write(n.current(), pem, 0o600))
	}
	old := pair(t, time.Now().Add(-9*time.Hour), time.Now().Add(time.Hour)) // due to be renewed
	put(old)
	n.Eventually("the pair counts", func() bool { return keeper.Problem() == nil })
	n.Must(os.Remove(n.current()))
	n.Eventually("the pair is put back", func() bool {
		now, err := os.ReadFile(n.current())
		return err == nil && bytes.Equal(now, old)
	})

	fresh := pair(t, time.Now().Add(-time.Minute), time.Now().Add(9*time.Hour))
	put(fresh)
	select {
	case <-given:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for its own request still")
	}
	n.approve()
	n.Eventually("the answer is there", func() bool {
		status, _ := n.CSRs()[0]["status"].(apiserver.Object)
		return status["certificate"] != nil
	})
	stop()
	now, err := os.ReadFile(n.current())
	n.Must(err)
	n.Same("stored", string(fresh), string(now))
	n.Same("askers", []string{kubelet}, n.askers())
}

// writer is an io.Writer that is told each line.
type writer func([]byte)

// Write is io.Writer's.
func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

// pair is a certificate of this node's and its key, of some authority.
func pair(t *testing.T, from, to time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: multus, Organization: []string{nodecert.Organization}}, NotBefore: from, NotAfter: to,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...)
}

// TestC1_16DenialAndAbsenceAreTold, and outlived.
func TestC1_16DenialAndAbsenceAreTold(t *testing.T) {
	n := newNode(t)
	n.Refuse()
	keeper, _ := n.keep()
	problem := func(words string) {
		t.Helper()
		n.Eventually("the problem tells "+words, func() bool {
			err := keeper.Problem()
			return err != nil && strings.HasPrefix(err.Error(), "this node has no valid client certificate") && strings.Contains(err.Error(), words)
		})
	}
	problem("yet")
	problem("connection refused")
	n.Must(n.Accept())
	n.Eventually("it asks", func() bool { return len(n.CSRs()) > 0 })
	name := n.deny("not today")
	problem("certificate signing request " + name + ": Denied: not today")
	n.approve()
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
}

// deny denies the first request, and returns its name.
func (n *node) deny(why string) string {
	n.Helper()
	client, err := nodecert.RESTClient(n.admin())
	n.Must(err)
	defer client.Client.CloseIdleConnections()
	name := n.CSRs()[0]["metadata"].(apiserver.Object)["name"].(string)
	var request certificatesv1.CertificateSigningRequest
	n.Must(client.Get().Resource(nodecert.Resource).Name(name).Do(n.Context()).Into(&request))
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Message: why}}
	n.Must(client.Put().Resource(nodecert.Resource).Name(name).SubResource("approval").Body(&request).Do(n.Context()).Error())
	return name
}

func TestC1_16KubeconfigServes(t *testing.T) {
	n := newNode(t)
	n.approve()
	keeper, _ := n.keep()
	path := filepath.Join(n.dir, "out", "kubeconfig")
	n.Must(keeper.WriteKubeconfig(path))
	info, err := os.Stat(path)
	n.Must(err)
	n.Same("mode", "-rw-------", info.Mode().String())
	client, err := kube.Connect(kube.Options{Kubeconfig: path})
	n.Must(err)
	t.Cleanup(client.Close)
	n.Eventually("there is a certificate", func() bool { return keeper.Problem() == nil })
	n.RequireUser(multus)
	n.Eventually("the API is asked as this node's Multus", func() bool {
		_, err := client.Live(t.Context(), "shop", "absent")
		return err != nil && strings.Contains(err.Error(), "not found")
	})
}

// TestC1_16KubeconfigFollows: the cluster gets another CA, or another address, and other
// programs do what they do.
func TestC1_16KubeconfigFollows(t *testing.T) {
	n := newNode(t)
	keeper, err := nodecert.New(n.options())
	n.Must(err)
	bootstrap, path := n.options().Bootstrap, filepath.Join(n.dir, "out", "kubeconfig")
	n.Must(keeper.WriteKubeconfig(path))
	n.background(func(ctx context.Context) { keeper.KeepKubeconfig(ctx, path) })
	cluster := func() *clientcmdapi.Cluster {
		file, err := clientcmd.LoadFromFile(path)
		if err != nil || file.Clusters["multus"] == nil {
			return &clientcmdapi.Cluster{}
		}
		return file.Clusters["multus"]
	}
	before := cluster()
	change := func(edit func(*clientcmdapi.Cluster)) {
		t.Helper()
		file, err := clientcmd.LoadFromFile(bootstrap)
		n.Must(err)
		for _, c := range file.Clusters {
			edit(c)
		}
		n.Must(clientcmd.WriteToFile(*file, bootstrap))
	}
	change(func(c *clientcmdapi.Cluster) { c.Server = "https://api.example:6443" })
	n.Eventually("the address follows", func() bool { return cluster().Server == "https://api.example:6443" })
	n.Same("CA", string(before.CertificateAuthorityData), string(cluster().CertificateAuthorityData))

	ca := filepath.Join(n.dir, "ca.crt")
	n.Must(os.WriteFile(ca, []byte("CA 1"), 0o600))
	change(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData, c.CertificateAuthority = nil, ca })
	n.Eventually("the CA is that of a file", func() bool { return string(cluster().CertificateAuthorityData) == "CA 1" })
	n.Must(os.WriteFile(ca, []byte("CA 2"), 0o600))
	n.Eventually("the CA follows", func() bool { return string(cluster().CertificateAuthorityData) == "CA 2" })
}

func TestC1_16Mistakes(t *testing.T) {
	n := newNode(t)
	write := func(name, text string) string {
		path := filepath.Join(n.dir, name)
		n.Must(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		change func(*nodecert.Options)
		want   string
	}{
		"no node":           {func(o *nodecert.Options) { o.Node = "" }, "the node's name is not known: set MULTUS_NODE_NAME to spec.nodeName"},
		"too short":         {func(o *nodecert.Options) { o.Duration = time.Minute }, "a certificate for 1m0s: want 10m0s at least, or the API server refuses the request"},
		"no bootstrap":      {func(o *nodecert.Options) { o.Bootstrap = n.dir + "/none" }, "bootstrap kubeconfig DIR/none: stat DIR/none: no such file or directory"},
		"an empty one":      {func(o *nodecert.Options) { o.Bootstrap = write("empty", "") }, "bootstrap kubeconfig DIR/empty: current-context names no context with a cluster"},
		"one without a use": {func(o *nodecert.Options) { o.Bootstrap = write("list", "[]") }, "bootstrap kubeconfig DIR/list: "},
	} {
		t.Run(name, func(t *testing.T) {
			o := n.options()
			c.change(&o)
			_, err := nodecert.New(o)
			if err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), n.dir, "DIR"), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
