//go:build e2e

package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/multus-thick/multus/test/cluster/lab"
)

// cluster is the suite's: two nodes with Multus.
var cluster *lab.Cluster

// root is the checkout. The plugins are built for the suite.
const root = "../.."

var serialPlugin, v4Plugin, devicePlugin, draDriver string

// TestMain is also the first process of the cluster's machines.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if lab.IsInit() {
		os.Exit(lab.Init(ctx))
	}
	code, err := run(ctx, m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// run brings the cluster up and installs Multus, unless a developer has done so, and takes
// away what it brought.
func run(ctx context.Context, tests func() int) (code int, err error) {
	config, err := lab.DefaultConfig(os.Getenv)
	if err != nil {
		return 1, err
	}
	if cluster, err = lab.Open(config); err != nil {
		return 1, err
	}
	work, err := os.MkdirTemp("", "multus-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	for name, path := range map[string]*string{"serial": &serialPlugin, "v4": &v4Plugin, "deviceplugin": &devicePlugin, "dradriver": &draDriver} {
		if *path, err = build(work, name); err != nil {
			return 1, err
		}
	}
	if cluster.Options().Nodes == 0 {
		defer func() { err = errors.Join(err, cluster.Down(context.WithoutCancel(ctx))) }()
	}
	defer func() {
		if logs := os.Getenv("E2E_LOGS"); logs != "" && (code != 0 || err != nil) {
			err = errors.Join(err, keepLogs(context.WithoutCancel(ctx), logs))
		}
	}()
	if err := cluster.Up(ctx, lab.Options{Nodes: 2, Runtime: lab.Runtime(cmp.Or(os.Getenv("MULTUS_CLUSTER_RUNTIME"), string(lab.Containerd)))}); err != nil {
		return 1, err
	}
	if err := install(ctx); err != nil {
		return 1, err
	}
	ended := make(chan int, 1)
	go func() { ended <- tests() }()
	select {
	case code := <-ended:
		return code, nil
	case <-ctx.Done():
		return 1, errors.New("interrupted")
	}
}

// keepLogs copies the logs of every component into a folder, and prints the end of each.
func keepLogs(ctx context.Context, folder string) error {
	if err := cluster.CopyLogs(ctx, folder); err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(folder, "*", "*.log"))
	if err != nil {
		return err
	}
	containers, err := filepath.Glob(filepath.Join(folder, "*", "pods", "kube-system_kube-multus-ds-*", "*", "*.log"))
	if err != nil {
		return err
	}
	for _, log := range append(programs, containers...) {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Printf("== the end of %s\n%s\n", log, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
	return nil
}

// install loads the images that `make image` has built, and installs Multus as
// docs/install.md says.
func install(ctx context.Context) error {
	if err := cluster.Load(ctx, root+"/bin/image/multus-thick.tar", root+"/bin/image/multus-thin.tar"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-k", root + "/deploy/crd"},
		{"wait", "--for=condition=Established", "crd/network-attachment-definitions.k8s.cni.cncf.io", "--timeout=60s"},
		{"apply", "-k", root + "/deploy/thick"},
		{"-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s"},
	} {
		if _, err := tryKubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// build builds a plugin of the suite and returns its path.
func build(folder, name string) (string, error) {
	path := filepath.Join(folder, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	return path, nil
}
