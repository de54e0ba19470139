package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/approver"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestC1_16DaemonLivesThroughRenewals: it waits for its first certificate, asks the API
// with it and with those that follow, and outlives a moment without the file.
func TestC1_16DaemonLivesThroughRenewals(t *testing.T) {
	c, dir := check.T{T: t}, t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	server, err := apiserver.StartTLS("127.0.0.1")
	c.Must(err)
	t.Cleanup(server.Close)
	server.SignFor(4 * time.Second)
	server.RequireUser("system:node:n1")
	bootstrap, err := server.Kubeconfig(dir)
	c.Must(err)
	server.RequireUser("")
	c.Must(os.Mkdir(at("net.d"), 0o755))
	c.Must(os.WriteFile(at("net.d/10-main.conf"), []byte(`{"cniVersion":"1.0.0","name":"main","type":"bridge"}`), 0o644))
	c.Must(os.WriteFile(at("config.json"), []byte(fmt.Sprintf(
		`{"multusAutoconfigDir":%q,"cniConfigDir":%q,"socketDir":%q,"cniDir":%q,"perNodeCertificate":{"enabled":true,"bootstrapKubeconfig":%q,"certDir":%q}}`,
		at("net.d"), at("net.d"), at("run"), at("cni"), bootstrap, at("certs"))), 0o644))
	t.Setenv("MULTUS_NODE_NAME", "n1")

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan int, 1)
	running.Go(func() {
		var stdout, stderr strings.Builder
		ended <- run(ctx, []string{"-config", at("config.json")}, &stdout, &stderr)
	})
	ready := func() string {
		var stdout, stderr strings.Builder
		run(t.Context(), []string{"-config", at("config.json"), "readycheck"}, &stdout, &stderr)
		return stderr.String()
	}
	const none = "this node has no valid client certificate"
	c.Eventually("it waits for a certificate", func() bool { return strings.Contains(ready(), none) })
	a, err := approver.New(&rest.Config{Host: server.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: server.CA()}}, slog.New(slog.DiscardHandler))
	c.Must(err)
	running.Go(func() { a.Run(ctx) })
	c.Eventually("it is ready", func() bool { return ready() == "" })

	asked := func() int { return len(server.CSRs()) }
	for renewals := asked() + 2; asked() < renewals; {
		c.Must(os.RemoveAll(at("certs/multus-client-current.pem"))) // which is put right within a second
		before := asked()
		server.CutWatches()
		c.Eventually("a renewal", func() bool { return asked() > before })
		c.Eventually("it is ready still", func() bool { return ready() == "" })
	}
	kubeconfig, err := os.ReadFile(at("certs/kubeconfig"))
	c.Must(err)
	c.Must(os.Truncate(at("certs/kubeconfig"), 0))
	c.Eventually("the kubeconfig beside it is put right", func() bool {
		now, err := os.ReadFile(at("certs/kubeconfig"))
		return err == nil && string(now) == string(kubeconfig)
	})
	for _, r := range server.Requests() {
		watch := r.Method == http.MethodGet && (strings.HasSuffix(r.Path, "/pods") || strings.HasSuffix(r.Path, "/network-attachment-definitions"))
		if watch && r.User != "system:multus:n1" {
			t.Errorf("%s %s was asked as %q", r.Method, r.Path, r.User)
		}
	}
	stop()
	c.Same("the daemon's exit", 0, <-ended)
}
