//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/test/cluster/lab"
)

// A node loses power and comes back: processes, /run and interfaces are gone, disks and
// /etc are kept, and the kubelet begins with the pods before the daemon's is there. Every
// pod comes back with all its networks, and no address is lost.
func TestI3_NodeReboot(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.73.0.0/16")), nad("cable", macvlan("cable")))
	names := s.burst("p", 20, node2, "lan")
	s.apply(pod("cabled", node2, `[{"name":"cable","ips":["192.168.10.5/24"],"mac":"02:00:00:00:10:05"},{"name":"lan","interface":"lan0"}]`), pod("plain", node2, ""))
	s.putStatic(node2, "static", "lan")
	s.allReady(patience)
	all := append(names, "cabled", "plain", "static-"+node2)
	leases, records := len(s.leases(node2)), len(s.records(node2))

	s.Must(s.machine(node2).Reboot(t.Context(), lab.BootOptions{}))
	begin := time.Now()
	for _, name := range all {
		s.within(patience, func() error { return restarted(s.pod(name)) })
	}
	t.Logf("%d pods are back %.1f s after the reboot", len(all), time.Since(begin).Seconds())
	s.complete(2, names...)
	s.complete(2, "static-"+node2)
	s.Same("the pod with two networks", []string{"eth0 10.244.2.N/24", "lan0 10.73.0.N/16", "net1 192.168.10.5/24"}, masked(s.interfaces("cabled")))
	s.complete(3, "cabled")
	s.complete(1, "plain")
	s.within(patience, func() error { // the sandboxes of before are deleted in the kubelet's own time
		if now := len(s.leases(node2)); now != leases {
			return fmt.Errorf("%d addresses are held, %d were before", now, leases)
		}
		if now := len(s.records(node2)); now != records {
			return fmt.Errorf("%d sandboxes are recorded, %d were before", now, records)
		}
		return nil
	})
	if events := s.kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].message}"); strings.Contains(strings.ToLower(events), "text file busy") {
		t.Error("an event tells of a busy text file")
	}
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	if strays := s.strays(); len(strays) > 0 {
		t.Errorf("strays after a reboot that keeps /etc: %v", strays)
	}
}

// restarted tells whether a pod runs again after its node was rebooted.
func restarted(p corev1.Pod) error {
	ready := false
	for _, c := range p.Status.Conditions {
		ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 && ready {
		return nil
	}
	return fmt.Errorf("pod %s is not back: %s", p.Name, p.Status.Phase)
}
