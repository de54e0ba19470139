package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestI4_Probes are the commands of exec probes, over the life of a daemon that waits
// for its primary network at first.
func TestI4_Probes(t *testing.T) {
	c, dir := check.T{T: t}, t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, folder := range []string{"net.d", "kube"} {
		c.Must(os.Mkdir(at(folder), 0o755))
	}
	c.Must(os.WriteFile(at("config.json"), []byte(fmt.Sprintf(
		`{"kubeconfig":%q,"multusAutoconfigDir":%q,"cniConfigDir":%q,"socketDir":%q,"cniDir":%q}`,
		at("kube"), at("net.d"), at("net.d"), at("run"), at("cni"))), 0o644))
	type outcome struct {
		Exit int
		Says string
	}
	probe := func(args ...string) outcome {
		var stdout, stderr strings.Builder
		exit := run(t.Context(), append([]string{"-config", at("config.json")}, args...), &stdout, &stderr)
		return outcome{exit, stdout.String() + stderr.String()}
	}
	away := func(name string) outcome {
		return outcome{1, fmt.Sprintf("multus-daemon: %scheck: Get \"http://dummy/%sz\": dial unix %s: connect: no such file or directory\n", name, name, at("run/multus.sock"))}
	}
	c.Same("no daemon", away("health"), probe("healthcheck"))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int)
	go func() {
		var stdout, stderr strings.Builder
		ended <- run(ctx, []string{"-config", at("config.json")}, &stdout, &stderr)
	}()
	waiting := outcome{1, fmt.Sprintf("multus-daemon: readycheck: the daemon answered HTTP 500: \"waiting for a primary network's configuration (.conf or .conflist) in %s\"\n", at("net.d"))}
	c.Eventually("it waits for the primary network", func() bool { return probe("readycheck") == waiting })
	c.Same("health meanwhile", outcome{}, probe("healthcheck"))
	c.Must(os.WriteFile(at("net.d/10-main.conf"), []byte(`{"cniVersion":"1.0.0","name":"main","type":"bridge"}`), 0o644))
	c.Eventually("it is ready", func() bool { return probe("readycheck") == outcome{} })

	c.Must(os.WriteFile(at("config.json"), []byte("{"), 0o644))
	c.Same("readiness with a broken configuration", 1, probe("readycheck").Exit)
	c.Same("the folder given", outcome{}, probe("readycheck", at("run")))
	stop()
	c.Same("the daemon's exit", 0, <-ended)
	c.Same("a daemon that has gone", away("ready"), probe("readycheck", at("run")))

	for _, args := range [][]string{{"readychek"}, {"readycheck", at("run"), "more"}} {
		c.Same("wrong arguments", outcome{1, fmt.Sprintf("multus-daemon: the arguments are %q: want none to serve, or healthcheck or readycheck and, optionally, the folder of the socket\n", args)}, probe(args...))
	}
}
