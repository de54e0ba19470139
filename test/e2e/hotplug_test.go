//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/internal/netspec"
)

// selects changes a running pod's annotation, as a user does.
func (s *suite) selects(pod, networks string) {
	s.Helper()
	s.kubectl("-n", s.ns, "annotate", "--overwrite", "pod", pod, netspec.AnnotationNetworks+"="+networks)
}

// has waits until a pod's status names these interfaces, and demands that it has them,
// with as many addresses as the status says.
func (s *suite) has(pod string, interfaces ...string) {
	s.Helper()
	var said []string
	s.within(patience, func() error {
		var names []string
		said = nil
		for _, e := range s.status(pod) {
			names = append(names, e.Interface)
			said = append(said, e.Interface+" "+strings.Join(e.IPs, " "))
		}
		if strings.Join(names, " ") != strings.Join(interfaces, " ") {
			return fmt.Errorf("pod %s says %v, want %v", pod, names, interfaces)
		}
		return nil
	})
	got := map[string]bool{}
	for _, line := range s.interfaces(pod) {
		got[strings.Split(line, "/")[0]] = true
	}
	if len(got) != len(said) {
		s.Errorf("pod %s has %v and says %v", pod, got, said)
	}
	for _, line := range said {
		if !got[line] {
			s.Errorf("pod %s says %q and has %v", pod, line, got)
		}
	}
}

// Three networks come and go several times under load and over restarts of the daemon,
// while the pod talks over a network that nobody touches. One of them takes the default
// route, and the definition of another is gone when it is to be detached.
func TestI5_HotPlug(t *testing.T) {
	s := begin(t)
	t.Cleanup(func() { s.install("thick") })
	s.install("hotplug")
	s.apply(nad("steady", bridged("steady", "10.83.0.0/16")), nad("hot-1", bridged("hot-1", "10.84.0.0/24")), nad("hot-2", bridged("hot-2", "10.85.0.0/24")),
		nad("hot-3", bridged("hot-3", "10.86.0.0/24")), pod("p", node1, "steady"), pod("peer", node1, "steady"))
	s.ready("p", "peer")
	s.complete(2, "p", "peer")
	before := s.attached("p")
	address := s.status("p")[1].IPs[0]
	s.exec("peer", "ping "+address+" > /tmp/ping 2>&1 & echo $! > /tmp/pid")
	load := s.burst("load", 15, node1, "steady")

	const all = `[{"name":"steady"},{"name":"hot-1","interface":"h1","mac":"02:00:00:00:84:01","ips":["10.84.0.99/24"]},` +
		`{"name":"hot-2","interface":"h2","default-route":["10.85.0.1"]},{"name":"hot-3","interface":"h3","cni-args":{"k":"v"}}]`
	kill := func() { s.on(node1, "kill", "-KILL", s.daemonPID(node1)) }
	for round, between := range []func(){
		func() {},
		kill, // while it attaches
		func() { s.restartDaemons() },
	} {
		s.selects("p", all)
		between()
		s.has("p", "eth0", "net1", "h1", "h2", "h3")
		if round == 0 {
			s.Same("the MAC that was asked for", "02:00:00:00:84:01", s.exec("p", "cat /sys/class/net/h1/address"))
			s.Same("the default route", []string{"via 10.85.0.1 dev h2"}, s.defaults("p"))
			s.event("p", "AddedInterface: Add h1 [10.84.0.99/24] from "+s.ns+"/hot-1")
		}
		if round == 2 {
			s.kubectl("-n", s.ns, "delete", "network-attachment-definition", "hot-3")
		}
		s.selects("p", "steady")
		between()
		s.has("p", "eth0", "net1")
		s.Same("as before", before, s.attached("p"))
	}
	s.event("p", "RemovedInterface: Remove h3 from "+s.ns+"/hot-3")
	s.allReady(10 * time.Minute)
	s.complete(2, load...)
	told := s.exec("peer", "kill -INT $(cat /tmp/pid); sleep 1; grep transmitted /tmp/ping")
	var sent, received int
	_, err := fmt.Sscanf(told, "%d packets transmitted, %d packets received", &sent, &received)
	s.Must(err)
	if sent-received > 1 { // the last one may be under way
		t.Errorf("traffic on the network that nobody touched: %s", told)
	}

	// What is plugged when the pod goes, goes with it: begin's end sees to the addresses.
	s.selects("p", "steady,hot-1@h1,hot-2")
	s.within(patience, func() error {
		if n := len(s.status("p")); n != 4 {
			return fmt.Errorf("%d entries", n)
		}
		return nil
	})
	s.remove(node1, append(load, "p", "peer")...)
}

// A thousand operations on twenty pods leave nothing on the node: no lease, no record, no
// result, no link, no descriptor of the daemon.
func TestI5_AThousandHotPlugs(t *testing.T) {
	const pods, networks, rounds = 20, 5, 5
	s := begin(t)
	t.Cleanup(func() { s.install("thick") })
	s.install("hotplug")
	s.kubectl("-n", "kube-system", "set", "resources", daemonSet, "--containers=kube-multus", "--requests=cpu=1,memory=200Mi", "--limits=cpu=1,memory=200Mi")
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	var all, interfaces []string
	for i := range networks {
		name := fmt.Sprintf("hot-%d", i)
		s.apply(nad(name, bridged(name, fmt.Sprintf("10.%d.0.0/16", 110+i))))
		all, interfaces = append(all, fmt.Sprintf("%s@h%d", name, i)), append(interfaces, fmt.Sprintf("h%d", i))
	}
	names := s.burst("p", pods, node1, "")
	s.allReady(patience)
	round := func() {
		s.allSelect(names, strings.Join(all, ","), append([]string{"eth0"}, interfaces...))
		s.has(names[0], append([]string{"eth0"}, interfaces...)...)
		s.allSelect(names, "", []string{"eth0"})
	}
	round() // everything is there once
	daemon := s.daemonPID(node1)
	left := func() string { // a lock's file may stay until its next use, where another plugin was started at that moment
		return s.on(node1, "sh", "-c", "find /var/lib/cni/networks /var/lib/cni/multus -type f ! -name 'last_reserved_ip*' ! -path '*/.lock/*' | sort; ip -o link show type veth | wc -l; "+
			"ls /proc/"+daemon+"/fd | wc -l")
	}
	before, memory := left(), s.daemonMemory(node1, "VmRSS")
	start := time.Now()
	for range rounds {
		round()
	}
	t.Logf("%d operations in %.1f s; the daemon had %.1f MiB before and %.1f MiB after", 2*pods*networks*rounds, time.Since(start).Seconds(), memory, s.daemonMemory(node1, "VmRSS"))
	s.within(patience, func() error { // a connection to the API may come and go
		if now := left(); now != before {
			return fmt.Errorf("left on the node (-before +now):\n%s", cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
		}
		return nil
	})
	s.Same("the daemon", daemon, s.daemonPID(node1))
	s.remove(node1, names...)
}

// allSelect changes the annotation of pods, and waits until their statuses name these
// interfaces.
func (s *suite) allSelect(pods []string, networks string, interfaces []string) {
	s.Helper()
	s.kubectl(append(append([]string{"-n", s.ns, "annotate", "--overwrite", "pod"}, pods...), netspec.AnnotationNetworks+"="+networks)...)
	s.within(patience, func() error {
		var list corev1.PodList
		s.Must(json.Unmarshal([]byte(s.kubectl("-n", s.ns, "get", "pods", "-o", "json")), &list))
		for _, p := range list.Items {
			var names []string
			entries, err := netspec.ParseStatus(p.Annotations[netspec.AnnotationStatus])
			s.Must(err)
			for _, e := range entries {
				names = append(names, e.Interface)
			}
			slices.Sort(names)
			if !slices.Equal(names, interfaces) {
				return fmt.Errorf("pod %s has %v, want %v", p.Name, names, interfaces)
			}
		}
		return nil
	})
}

// A pod starts without an optional network whose definition is missing, says so, and has
// it when the definition comes.
func TestI5_OptionalNetwork(t *testing.T) {
	s := begin(t)
	t.Cleanup(func() { s.install("thick") })
	s.install("hotplug")
	s.apply(pod("p", node1, `[{"name":"late","interface":"late0","io.multus.optional":true}]`))
	s.ready("p")
	s.event("p", "FailedAddingInterface: ")
	s.kubectl("-n", s.ns, "wait", "--for=condition=multus-cni.io/NetworksAttached=False", "pod/p", "--timeout=60s")
	s.apply(nad("late", bridged("late", "10.87.0.0/24")))
	s.has("p", "eth0", "late0")
	s.kubectl("-n", s.ns, "wait", "--for=condition=multus-cni.io/NetworksAttached", "pod/p", "--timeout=60s")
	s.remove(node1, "p")
}

// An installation without privileges says that it cannot, and changes nothing.
func TestI5_HotPlugWithoutPrivileges(t *testing.T) {
	s := begin(t)
	config := s.kubectl("-n", "kube-system", "get", "configmap", "multus-daemon-config", "-o", `jsonpath={.data.daemon-config\.json}`)
	t.Cleanup(func() { s.install("thick"); s.restartDaemons() })
	with := strings.Replace(config, "{", `{"hotplug": true,`, 1)
	s.kubectl("-n", "kube-system", "patch", "configmap", "multus-daemon-config", "--type=merge", "-p", text(object{"data": object{"daemon-config.json": with}}))
	s.restartDaemons()
	s.apply(nad("lan", bridged("lan", "10.88.0.0/24")), pod("p", node1, ""))
	s.ready("p")
	s.selects("p", "lan")
	s.event("p", "InterfaceAddRejected: ")
	s.Same("interfaces", []string{"eth0"}, s.names("p"))
}
