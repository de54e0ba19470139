package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/approver"
	"github.com/multus-thick/multus/internal/entrypoint"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestC1_20FlagsCount: v4 wrote to the default place whatever --kubeconfig said. The file
// comes with the first certificate, follows the bootstrap's cluster, and is put right when it is
// damaged.
func TestC1_20FlagsCount(t *testing.T) {
	c, dir := check.T{T: t}, t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	server, err := apiserver.StartTLS("127.0.0.1")
	c.Must(err)
	t.Cleanup(server.Close)
	server.RequireUser("system:node:n1")
	_, err = server.Kubeconfig(dir)
	c.Must(err)
	server.RequireUser("")
	t.Setenv("MULTUS_NODE_NAME", "n1")

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan int, 1)
	running.Go(func() {
		var stderr strings.Builder
		ended <- run(ctx, []string{"--bootstrap-config=" + at("kubeconfig"), "--certdir=" + at("certs"), "--kubeconfig=" + at("out/multus.kubeconfig"), "--cert-duration=20m"}, &stderr)
	})
	c.Eventually("it asks", func() bool { return len(server.CSRs()) > 0 })
	if _, err := os.Stat(at("out/multus.kubeconfig")); err == nil {
		t.Error("there is a kubeconfig before there is a certificate")
	}
	a, err := approver.New(&rest.Config{Host: server.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: server.CA()}}, slog.New(slog.DiscardHandler))
	c.Must(err)
	running.Go(func() { a.Run(ctx) })
	var text []byte
	c.Eventually("the kubeconfig is there", func() bool {
		text, err = os.ReadFile(at("out/multus.kubeconfig"))
		return err == nil
	})
	pair := at("certs/multus-client-current.pem")
	if n := strings.Count(string(text), pair+"\n"); n != 2 || !strings.Contains(string(text), "server: "+server.URL()+"\n") {
		t.Errorf("the kubeconfig names %s %d times, want 2:\n%s", pair, n, text)
	}
	spec := server.CSRs()[0]["spec"].(apiserver.Object)
	if seconds, ok := spec["expirationSeconds"].(interface{ String() string }); !ok || seconds.String() != "1200" {
		t.Errorf("expirationSeconds is %v", spec["expirationSeconds"])
	}
	holds := func(want string) {
		t.Helper()
		c.Eventually("the kubeconfig is as it should be", func() bool {
			info, err := os.Stat(at("out/multus.kubeconfig"))
			got, readErr := os.ReadFile(at("out/multus.kubeconfig"))
			return errors.Join(err, readErr) == nil && info.Mode() == 0o600 && string(got) == want
		})
	}
	c.Must(os.WriteFile(at("out/multus.kubeconfig"), []byte("damaged"), 0o600))
	holds(string(text))
	c.Must(os.Chmod(at("out/multus.kubeconfig"), 0o644))
	holds(string(text))
	c.Must(os.RemoveAll(at("out")))
	holds(string(text))
	bootstrap, err := os.ReadFile(at("kubeconfig"))
	c.Must(err)
	moved := strings.NewReplacer(server.URL(), "https://api.example:6443")
	c.Must(os.WriteFile(at("kubeconfig"), []byte(moved.Replace(string(bootstrap))), 0o600))
	holds(moved.Replace(string(text)))

	stop()
	c.Same("exit", 0, <-ended)
}

// pair is the thin pod's two containers on one node, and their cluster.
type pair struct {
	check.T
	*apiserver.Server
	dir string
}

const kubeconfig = "net.d/multus.d/multus.kubeconfig"

func newPair(t *testing.T) *pair {
	t.Helper()
	server, err := apiserver.StartTLS("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	p := &pair{check.T{T: t}, server, t.TempDir()}
	server.RequireUser("system:node:n1")
	_, err = server.Kubeconfig(p.dir)
	p.Must(err)
	server.RequireUser("")
	server.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	p.Must(os.Mkdir(p.at("net.d"), 0o755))
	p.Must(os.WriteFile(p.at("net.d/10-a.conflist"), []byte(`{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"bridge"}]}`), 0o600))
	t.Setenv("MULTUS_NODE_NAME", "n1")
	return p
}

func (p *pair) at(name string) string { return filepath.Join(p.dir, name) }

// start runs both until stop.
func (p *pair) start() (stop func()) {
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	running.Go(func() {
		var stderr strings.Builder
		p.Same("kubeconfig_generator's exit", 0, run(ctx, []string{"--bootstrap-config=" + p.at("kubeconfig"), "--certdir=" + p.at("certs"), "--kubeconfig=" + p.at(kubeconfig), "--cert-duration=24h"}, &stderr))
	})
	running.Go(func() {
		set := pflag.NewFlagSet("thin_entrypoint", pflag.ContinueOnError)
		flags := entrypoint.NewFlags(set)
		err := set.Parse([]string{"--cni-conf-dir=" + p.at("net.d"), "--multus-autoconfig-dir=" + p.at("net.d"), "--multus-cni-conf-dir=" + p.at("named"), "--skip-multus-binary-copy"})
		p.Same("thin_entrypoint's error", nil, errors.Join(err, flags.Run(ctx, entrypoint.Cluster{ServiceAccount: p.at("none")}, slog.New(slog.DiscardHandler))))
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	p.Cleanup(stop)
	return stop
}

func (p *pair) approve() {
	p.Helper()
	a, err := approver.New(&rest.Config{Host: p.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: p.CA()}}, slog.New(slog.DiscardHandler))
	p.Must(err)
	ctx, stop := context.WithCancel(p.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	p.Cleanup(func() { stop(); running.Wait() })
}

// ready demands an exit code of readycheck.
func (p *pair) ready(want int) {
	p.Helper()
	var stderr strings.Builder
	p.Same("readycheck", want, run(p.Context(), []string{"readycheck", "--certdir=" + p.at("certs")}, &stderr))
	if says := strings.HasPrefix(stderr.String(), "kubeconfig_generator: this node has no valid client certificate: "); says != (want == 1) {
		p.Errorf("readycheck says %q", stderr.String())
	}
}

// works demands that the plugin can ask the API, as its node.
func (p *pair) works() {
	p.Helper()
	client, err := kube.Connect(kube.Options{Kubeconfig: p.at(kubeconfig)})
	p.Must(err)
	defer client.Close()
	p.ResetRequests()
	_, err = client.Live(p.Context(), "default", "web")
	p.Must(err)
	asked := slices.DeleteFunc(p.Requests(), func(r apiserver.Request) bool { return !strings.Contains(r.Path, "/pods/") })
	p.Same("the user", "system:multus:n1", asked[0].User)
}

// certificate is the current one, and its key.
func (p *pair) certificate() string {
	p.Helper()
	text, err := os.ReadFile(p.at("certs/multus-client-current.pem"))
	p.Must(err)
	return string(text)
}

// TestI4_BesideTheThinEntrypoint: the plugin has credentials from the first certificate on,
// through its renewal, while neither of the two containers runs, and when both come again.
func TestI4_BesideTheThinEntrypoint(t *testing.T) {
	p := newPair(t)
	p.SignFor(5 * time.Second)
	stop := p.start()
	p.Eventually("a certificate is asked for", func() bool { return len(p.CSRs()) > 0 })
	p.ready(1)
	p.approve()
	want := []string{"-rw------- net.d/00-multus.conflist", "-rw------- net.d/10-a.conflist", "-rw------- " + kubeconfig}
	p.Eventually("all is in place", func() bool { return slices.Equal(want, p.tree("net.d")) })
	p.ready(0)
	p.works()

	first := p.certificate()
	p.SignFor(time.Hour)
	p.Eventually("it is renewed", func() bool {
		p.works()
		return p.certificate() != first
	})
	for range 2 {
		stop()
		p.Same("left", want, p.tree("net.d"))
		p.works()
		p.ready(0)
		stop = p.start()
		p.works()
	}
	p.Same("certificates that were asked for", 2, len(p.CSRs()))
}

// tree lists the files of a folder, with modes.
func (p *pair) tree(folder string) (list []string) {
	p.Helper()
	err := fs.WalkDir(os.DirFS(p.dir), folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			list = append(list, info.Mode().String()+" "+path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file is put in place at this moment
		p.Fatal(err)
	}
	return list
}

// TestC1_16EndedWhileItWaits is no failure.
func TestC1_16EndedWhileItWaits(t *testing.T) {
	c, dir := check.T{T: t}, t.TempDir()
	server, err := apiserver.StartTLS("127.0.0.1")
	c.Must(err)
	t.Cleanup(server.Close)
	bootstrap, err := server.Kubeconfig(dir)
	c.Must(err)
	t.Setenv("MULTUS_NODE_NAME", "n1")
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	var stderr strings.Builder
	out := filepath.Join(bootstrap, "out") // nothing can be written there
	c.Same("exit", 0, run(ctx, []string{"--bootstrap-config=" + bootstrap, "--certdir=" + dir, "--kubeconfig=" + out}, &stderr))
}
