package main

import (
	"context"
	"errors"
	"log/slog"
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

// TestC1_20FlagsCount: v4 wrote to the default place whatever --kubeconfig said. The file
// comes with the first certificate, follows the bootstrap's cluster, is put right when it is
// damaged, and goes when the program is told to end.
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
	if _, err := os.Stat(at("out/multus.kubeconfig")); err == nil {
		t.Error("the kubeconfig is left behind")
	}
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
