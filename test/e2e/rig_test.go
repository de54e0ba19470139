//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/testkit/check"
	"github.com/multus-thick/multus/test/cluster/lab"
)

// The two nodes of the cluster.
const (
	node1 = "node1"
	node2 = "node2"
)

// patience is how long anything may take that a user waits for, on two busy cores.
const patience = 3 * time.Minute

// suite is one test with a namespace of its own.
type suite struct {
	check.T
	ns string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// begin makes the test's namespace. At the end its pods are deleted, and every address
// that was handed out meanwhile must be back.
func begin(t *testing.T) *suite {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	if len(name) > 40 {
		name = strings.Trim(name[:40], "-")
	}
	s := &suite{check.T{T: t}, name}
	before := map[string][]string{node1: s.leases(node1), node2: s.leases(node2)}
	s.kubectl("create", "namespace", s.ns)
	s.kubectl("-n", s.ns, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	t.Cleanup(func() {
		if t.Failed() {
			s.explain()
		}
		s.kubectl("delete", "namespace", s.ns, "--timeout=120s")
		for node, leases := range before {
			s.given(node, leases)
		}
	})
	return s
}

// explain prints what a person would ask first.
func (s *suite) explain() {
	for _, args := range [][]string{
		{"-n", s.ns, "get", "pods", "-o", "wide"},
		{"-n", s.ns, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", "kube-system", "get", "pods", "-o", "wide"},
		{"-n", "kube-system", "logs", "-l", "app=multus", "--tail=60", "--prefix"},
	} {
		out, err := tryKubectl(context.WithoutCancel(s.Context()), "", args...)
		s.Logf("kubectl %s\n%s\n%v", strings.Join(args, " "), out, err)
	}
}

// given demands that no address is held on a node that was not before.
func (s *suite) given(node string, before []string) {
	s.Helper()
	s.within(patience, func() error {
		left := slices.DeleteFunc(s.leases(node), func(l string) bool { return slices.Contains(before, l) })
		if len(left) > 0 {
			return fmt.Errorf("%s: addresses that nobody gave back: %v", node, left)
		}
		return nil
	})
}

// within polls until f returns nil.
func (s *suite) within(limit time.Duration, f func() error) {
	s.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %v", limit, err)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// kubectl is a command that must succeed.
func (s *suite) kubectl(args ...string) string {
	s.Helper()
	out, err := tryKubectl(context.WithoutCancel(s.Context()), "", args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// apply is kubectl apply of objects, in the test's namespace where they name none.
func (s *suite) apply(objects ...any) {
	s.Helper()
	var text bytes.Buffer
	for _, o := range objects {
		if yaml, ok := o.(string); ok {
			text.WriteString(yaml)
		} else {
			s.Must(json.NewEncoder(&text).Encode(o))
		}
		text.WriteString("\n---\n")
	}
	if _, err := tryKubectl(s.Context(), text.String(), "-n", s.ns, "apply", "-f", "-"); err != nil {
		s.Fatalf("%v\n%s", err, text.String())
	}
}

func tryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := output(exec.CommandContext(ctx, cluster.Kubectl(), append([]string{"--kubeconfig", cluster.Kubeconfig()}, args...)...), stdin)
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out, err
}

// on runs a command on a node; it must succeed.
func (s *suite) on(node string, args ...string) string {
	s.Helper()
	out, err := tryOn(context.WithoutCancel(s.Context()), node, args...)
	if err != nil {
		s.Fatalf("%s: %s: %v", node, strings.Join(args, " "), err)
	}
	return out
}

func tryOn(ctx context.Context, node string, args ...string) (string, error) {
	m, err := cluster.Machine(node)
	if err != nil {
		return "", err
	}
	cmd, err := m.Command(ctx, args[0], args[1:]...)
	if err != nil {
		return "", err
	}
	return output(cmd, "")
}

// machine is one of the cluster.
func (s *suite) machine(name string) lab.Machine {
	s.Helper()
	m, err := cluster.Machine(name)
	s.Must(err)
	return m
}

// output is what a command prints; its errors have what it says.
func output(cmd *exec.Cmd, stdin string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// ready waits until pods are Ready.
func (s *suite) ready(pods ...string) {
	s.Helper()
	for _, pod := range pods {
		s.kubectl("-n", s.ns, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout="+patience.String())
	}
}

// exec runs a shell command in a pod; it must succeed.
func (s *suite) exec(pod, command string) string {
	s.Helper()
	return s.kubectl("-n", s.ns, "exec", pod, "--", "sh", "-c", command)
}

// pod is the API's.
func (s *suite) pod(name string) corev1.Pod {
	s.Helper()
	var pod corev1.Pod
	s.Must(json.Unmarshal([]byte(s.kubectl("-n", s.ns, "get", "pod", name, "-o", "json")), &pod))
	return pod
}

// status is a pod's network-status.
func (s *suite) status(pod string) []netspec.StatusEntry {
	s.Helper()
	entries, err := netspec.ParseStatus(s.pod(pod).Annotations[netspec.AnnotationStatus])
	s.Must(err)
	return entries
}

// events waits until an event of a pod holds the words.
func (s *suite) event(pod, words string) {
	s.Helper()
	s.within(patience, func() error {
		told := s.kubectl("-n", s.ns, "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		if !strings.Contains(told, words) {
			return fmt.Errorf("no event of pod %s says %q:\n%s", pod, words, told)
		}
		return nil
	})
}

// interfaces are a pod's, as it sees them itself, loopback excepted: "net1 10.1.2.3/24 fd00::2/64".
func (s *suite) interfaces(pod string) []string {
	s.Helper()
	var all []string
	names := strings.Fields(s.exec(pod, "ls /sys/class/net"))
	for _, name := range names {
		if name == "lo" {
			continue
		}
		addresses := strings.Fields(s.exec(pod, "ip -o address show dev "+name+" scope global | awk '{print $4}'"))
		all = append(all, strings.TrimSpace(name+" "+strings.Join(addresses, " ")))
	}
	return all
}

// defaults are a pod's default routes: "via 10.1.0.1 dev net1".
func (s *suite) defaults(pod string) []string {
	s.Helper()
	var all []string
	for _, line := range strings.Split(s.exec(pod, "ip route; ip -6 route"), "\n") {
		if f := strings.Fields(line); len(f) >= 5 && f[0] == "default" {
			all = append(all, strings.Join(f[1:5], " "))
		}
	}
	return all
}

// leases are the addresses that host-local holds on a node: "network/address".
func (s *suite) leases(node string) []string {
	s.Helper()
	return strings.Fields(s.on(node, "sh", "-c", `cd /var/lib/cni/networks 2>/dev/null && find . -type f ! -name lock ! -name 'last_reserved_ip*' | sed 's#^\./##' | sort || true`))
}

// records are the sandboxes in a node's ledger.
func (s *suite) records(node string) []string {
	s.Helper()
	return strings.Fields(s.on(node, "sh", "-c", `cd /var/lib/cni/multus 2>/dev/null && find . -maxdepth 1 -type f ! -name '.*' | sed 's#^\./##' | sort || true`))
}

// in is the suite in a subtest.
func (s *suite) in(t *testing.T) *suite { return &suite{check.T{T: t}, s.ns} }

// file writes a file for kubectl and returns its path.
func (s *suite) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	s.Must(os.WriteFile(path, []byte(content), 0o600))
	return path
}

func checks(t *testing.T) check.T { return check.T{T: t} }
