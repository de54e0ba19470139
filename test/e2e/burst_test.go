//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// burst applies n pods at once on a node and returns their names.
func (s *suite) burst(prefix string, n int, node, networks string) []string {
	s.Helper()
	names := make([]string, n)
	objects := make([]any, n)
	for i := range n {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		objects[i] = pod(names[i], node, networks)
	}
	s.apply(objects...)
	return names
}

// allReady waits until every pod of the namespace is Ready.
func (s *suite) allReady(limit time.Duration) {
	s.Helper()
	s.kubectl("-n", s.ns, "wait", "--for=condition=Ready", "pod", "--all", "--timeout="+limit.String())
}

// remove deletes pods and waits until they are gone, and their sandboxes with them.
func (s *suite) remove(node string, pods ...string) {
	s.Helper()
	s.kubectl(append([]string{"-n", s.ns, "delete", "pod", "--timeout=180s"}, pods...)...)
	s.within(patience, func() error {
		if left := s.sandboxes(node, pods...); len(left) > 0 {
			return fmt.Errorf("%d sandboxes are left on %s", len(left), node)
		}
		return nil
	})
}

// sandboxes are the ready sandboxes of pods on a node.
func (s *suite) sandboxes(node string, pods ...string) []string {
	s.Helper()
	return strings.Fields(s.on(node, "crictl", "pods", "--namespace", s.ns, "--name", "^("+strings.Join(pods, "|")+")$", "--state", "ready", "-q"))
}

// complete demands of pods that they have every interface of their networks, and say so in
// the end: a status waits for the API, a pod does not.
func (s *suite) complete(interfaces int, pods ...string) {
	s.Helper()
	for _, pod := range pods {
		if got := s.interfaces(pod); len(got) != interfaces {
			s.Errorf("pod %s has the interfaces %v, want %d", pod, got, interfaces)
		}
		s.within(patience, func() error {
			if got := s.status(pod); len(got) != interfaces {
				return fmt.Errorf("pod %s has the network-status %v, want %d entries", pod, got, interfaces)
			}
			return nil
		})
	}
}

// restarts are how often the daemon's container of a node was started again.
func (s *suite) restarts(node string) int {
	s.Helper()
	n, err := strconv.Atoi(s.kubectl("-n", "kube-system", "get", "pod", "-l", "name=multus", "--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].status.containerStatuses[0].restartCount}"))
	s.Must(err)
	return n
}

// daemonPeak is the most memory that the daemon's process on a node ever had, in MiB. That
// of its container has the page cache too, which the kernel takes back at the limit.
func (s *suite) daemonPeak(node string) float64 {
	s.Helper()
	return s.daemonMemory(node, "VmHWM")
}

// daemonMemory is a size in the status of the daemon's process, in MiB.
func (s *suite) daemonMemory(node, key string) float64 {
	s.Helper()
	size, err := strconv.ParseFloat(s.on(node, "awk", "/^"+key+":/ {print $2}", "/proc/"+s.daemonPID(node)+"/status"), 64)
	s.Must(err)
	return size / 1024
}

// daemonPID is the daemon's process on a node, and not one of its probes.
func (s *suite) daemonPID(node string) string {
	s.Helper()
	var pids []string
	s.within(patience, func() error {
		out, err := tryOn(s.Context(), node, "pgrep", "-f", "^/usr/src/multus-cni/bin/multus-daemon$")
		if pids = strings.Fields(out); err != nil || len(pids) != 1 {
			return fmt.Errorf("%s has the daemons %v: %w", node, pids, err)
		}
		return nil
	})
	return pids[0]
}

// The node full of pods at once: the daemon stays within the 50Mi of Multus v4's manifest.
func TestI3_DaemonMemoryInABurst(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.60.0.0/16")))
	before := s.restarts(node1)
	names := s.burst("p", 109-s.podsOn(node1), node1, "lan")
	s.allReady(10 * time.Minute)
	peak := s.daemonPeak(node1)
	t.Logf("%d pods at once: the daemon had %.1f MiB at most", len(names), peak)
	if peak >= 50 {
		t.Errorf("the daemon had %.1f MiB", peak)
	}
	s.Same("restarts of the daemon", before, s.restarts(node1))
	s.complete(2, names[0], names[len(names)-1])
	s.remove(node1, names...)
}

// podsOn is how many pods a node has.
func (s *suite) podsOn(node string) int {
	s.Helper()
	return len(strings.Fields(s.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName="+node, "-o", "name")))
}

// A hundred pods with two further networks each, at once on one node, through Multus and
// through a plugin that runs the same three configurations one after the other: three
// interleaved pairs. The ratio is printed.
func TestI3_HundredPodsAtOnce(t *testing.T) {
	const pods = 100
	s := begin(t)
	lan, wire := bridged("lan", "10.61.0.0/16"), bridged("wire", "10.62.0.0/16")
	s.apply(nad("lan", lan), nad("wire", wire))
	// The daemon would take the plugin's file, which comes first, for the primary network's.
	t.Cleanup(func() { s.reconfigure(root + "/deploy/thick") })
	s.reconfigure("testdata/pinned")
	before := s.restarts(node1)
	var multus, serial []time.Duration
	for round := range 3 {
		begin := time.Now()
		names := s.burst(fmt.Sprintf("m%d", round), pods, node1, "lan,wire")
		s.allReady(10 * time.Minute)
		multus = append(multus, time.Since(begin))
		s.complete(3, names[0], names[pods/2], names[pods-1])
		s.remove(node1, names...)

		s.serially(node1, lan, wire)
		begin = time.Now()
		names = s.burst(fmt.Sprintf("s%d", round), pods, node1, "")
		s.allReady(10 * time.Minute)
		serial = append(serial, time.Since(begin))
		s.Same("interfaces", 3, len(s.interfaces(names[0])))
		s.remove(node1, names...)
		s.throughMultus(node1)
	}
	s.Same("restarts of the daemon", before, s.restarts(node1))
	slices.Sort(multus)
	slices.Sort(serial)
	t.Logf("%d pods with two further networks: %.1f s (%v), the same plugins one after the other %.1f s (%v): ratio %.2f; the daemon had %.1f MiB at most",
		pods, multus[1].Seconds(), multus, serial[1].Seconds(), serial, multus[1].Seconds()/serial[1].Seconds(), s.daemonPeak(node1))
}

// reconfigure installs a kustomization whose configuration of the daemon is another.
func (s *suite) reconfigure(kustomization string) {
	s.Helper()
	s.kubectl("apply", "-k", kustomization)
	s.kubectl("-n", "kube-system", "rollout", "restart", daemonSet)
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	s.multusConfigured()
}

const serialConf = "/etc/cni/net.d/00-a-serial.conf"

// serially puts the plugin serial before Multus on a node, until throughMultus or the end of
// the test: it runs the primary network and the others for every pod.
func (s *suite) serially(node string, others ...object) {
	s.Helper()
	primary := s.on(node, "cat", "/etc/cni/net.d/10-bridge.conflist")
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"serial","type":"serial","networks":[%s,%s,%s]}`, primary, text(others[0]), text(others[1]))
	s.copyTo(node, serialPlugin, "/opt/cni/bin/serial")
	s.Cleanup(func() { s.throughMultus(node) })
	s.on(node, "sh", "-c", "cat > "+serialConf+".tmp <<'EOF'\n"+conf+"\nEOF\nmv "+serialConf+".tmp "+serialConf)
	s.configured(node, "serial")
}

func (s *suite) throughMultus(node string) {
	s.Helper()
	s.on(node, "rm", "-f", serialConf)
	s.configured(node, "multus-cni-network")
}

// configured waits until the runtime of a node uses the network of that name.
func (s *suite) configured(node, network string) {
	s.Helper()
	s.within(patience, func() error {
		info, err := tryOn(context.WithoutCancel(s.Context()), node, "crictl", "info")
		if err != nil {
			return err
		}
		if !strings.Contains(info, `"Name": "`+network+`"`) && !strings.Contains(info, `"name": "`+network+`"`) {
			return fmt.Errorf("%s: the runtime does not use the network %s", node, network)
		}
		return nil
	})
}

// copyTo puts a program onto a node, in one step.
func (s *suite) copyTo(node, from, to string) {
	s.Helper()
	content, err := os.Open(from)
	s.Must(err)
	defer content.Close()
	cmd, err := s.machine(node).Command(s.Context(), "sh", "-c", "cat > "+to+".new && chmod 755 "+to+".new && mv "+to+".new "+to)
	s.Must(err)
	cmd.Stdin = content
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v: %s", to, err, out)
	}
}
