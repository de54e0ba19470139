//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const daemonSet = "daemonset/kube-multus-ds"

// stopDaemons takes the DaemonSet away, and waits until its pods, which would put back what
// is taken from a node, are gone too.
func (s *suite) stopDaemons() {
	s.Helper()
	s.kubectl("-n", "kube-system", "delete", daemonSet, "--cascade=foreground", "--ignore-not-found", "--timeout=120s")
}

// inABurst runs what happens to the daemon in the middle of a burst of annotated pods;
// each pod must come up whole, and go without leaving anything.
func inABurst(t *testing.T, n int, happens func(s *suite)) {
	t.Helper()
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.67.0.0/16")))
	before := len(s.leases(node1))
	names := s.burst("p", n, node1, "lan")
	s.within(patience, func() error { return atLeast(before+5, len(s.leases(node1))) })
	happens(s)
	s.allReady(10 * time.Minute)
	s.complete(2, names...)
	s.remove(node1, names...)
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
}

func TestI3_DaemonKilledInABurst(t *testing.T) {
	inABurst(t, 30, func(s *suite) {
		for range 2 {
			s.on(node1, "kill", "-KILL", s.daemonPID(node1))
		}
	})
}

// The DaemonSet is rolled to an image of another version, and back, in a burst.
func TestI3_DaemonRolledInABurst(t *testing.T) {
	image := (&suite{T: checks(t)}).kubectl("-n", "kube-system", "get", daemonSet, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	other := image[:strings.LastIndex(image, ":")] + ":other-version"
	inABurst(t, 30, func(s *suite) {
		for _, node := range []string{node1, node2} {
			s.on(node, "ctr", "-n", "k8s.io", "images", "tag", "--force", image, other)
		}
		for _, to := range []string{other, image} {
			s.kubectl("-n", "kube-system", "set", "image", daemonSet, "*="+to)
			s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
		}
	})
}

// The API server is away for a minute. What the kubelet has been told goes on; statuses
// come when it is back.
func TestI3_APIServerAwayInABurst(t *testing.T) {
	inABurst(t, 20, func(s *suite) {
		s.Must(cluster.ControlPlane().StopProgram(s.Context(), "kube-apiserver"))
		<-time.After(time.Minute)
		s.Must(cluster.ControlPlane().StartProgram(s.Context(), "kube-apiserver"))
		s.within(patience, func() error {
			_, err := tryKubectl(s.Context(), "", "get", "--raw", "/readyz")
			return err
		})
		for _, node := range cluster.Nodes() { // its own pauses between tries take minutes, and the Service is off until then
			s.Must(node.RestartProgram(s.Context(), "kube-proxy"))
		}
	})
}

// Without the daemon plain pods start and all pods are deleted; annotated ones wait,
// with a line that says why, and start when it is back.
func TestI3_DaemonScaledAway(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.68.0.0/16")))
	s.apply(pod("old-plain", node1, ""), pod("old-lan", node1, "lan"))
	s.ready("old-plain", "old-lan")
	s.kubectl("-n", "kube-system", "patch", daemonSet, "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"no":"node"}}}}}`)
	back := func() {
		s.kubectl("-n", "kube-system", "patch", daemonSet, "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"no":null}}}}}`)
		s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	}
	t.Cleanup(back)
	s.within(patience, func() error {
		if pods := s.kubectl("-n", "kube-system", "get", "pods", "-l", "name=multus", "-o", "name"); pods != "" {
			return fmt.Errorf("still there: %s", pods)
		}
		return nil
	})
	s.apply(pod("plain", node1, ""), pod("lan", node1, "lan"))
	s.ready("plain")
	s.kubectl("-n", s.ns, "delete", "pod", "old-plain", "old-lan", "--timeout=120s")
	s.event("lan", "the Multus daemon does not answer on ")
	back()
	s.ready("lan")
	s.complete(2, "lan")
	s.complete(1, "plain")
}
