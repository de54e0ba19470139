//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/netspec"
)

// handedOut is an address that IPAM chose: masked makes "10.51.0.7/24" "10.51.0.N/24".
var handedOut = regexp.MustCompile(`(10\.(?:244|51|52|53|54|73|77|78)\.\d+\.|fd53::|fd54::)[0-9a-f]+`)

func masked(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = handedOut.ReplaceAllString(line, "${1}N")
	}
	return all
}

// attached is what a user sees of a pod's networks.
type attached struct {
	Interfaces []string // in the pod
	Defaults   []string // default routes in the pod
	Status     []string // "network interface addresses [default]"
}

func (s *suite) attached(pod string) attached {
	s.Helper()
	var status []string
	for _, e := range s.status(pod) {
		line := e.Name + " " + e.Interface + " " + strings.Join(e.IPs, " ")
		if e.Default {
			line += " default"
		}
		status = append(status, strings.TrimSpace(line))
	}
	return attached{masked(s.interfaces(pod)), masked(s.defaults(pod)), masked(status)}
}

// putNetworks are the NetworkAttachmentDefinitions that the table's pods use.
func (s *suite) putNetworks() {
	s.Helper()
	list := bridged("listed", "10.53.0.0/24")
	for _, key := range []string{"cniVersion", "name"} {
		delete(list, key)
	}
	s.apply(
		nad("lan", macvlan("lan")),
		nad("local", bridged("local", "10.51.0.0/24")),
		nad("wire", pointToPoint("wire", "10.52.0.0/24")),
		nad("listed", object{"cniVersion": "1.0.0", "name": "listed", "plugins": []any{list, object{"type": "tuning", "sysctl": object{"net.ipv4.conf.IFNAME.arp_notify": "1"}}}}),
		nad("dual", func() object {
			dual := bridged("dual", "10.54.0.0/24")
			dual["ipam"] = hostLocal("10.54.0.0/24", "fd54::/64")
			return dual
		}()),
		nad("on-disk", nil),
	)
	for _, node := range []string{node1, node2} {
		onDisk := bridged("on-disk", "10.53.1.0/24")
		s.on(node, "sh", "-c", "mkdir -p /etc/cni/multus/net.d && cat > /etc/cni/multus/net.d/on-disk.conf <<'EOF'\n"+text(onDisk)+"\nEOF")
	}
}

const primary = "cluster eth0 10.244.1.N default"

// Pods with every kind of request, all at once on one node.
func TestI3_Networks(t *testing.T) {
	s := begin(t)
	s.putNetworks()
	other := s.ns + "-other"
	s.kubectl("create", "namespace", other)
	t.Cleanup(func() { s.kubectl("delete", "namespace", other) })
	s.kubectl("-n", other, "create", "-f", s.file("nad.json", text(nad("theirs", bridged("theirs", "10.51.1.0/24")))))

	eth0, viaEth0 := "eth0 10.244.1.N/24", "via 10.244.1.N dev eth0"
	name := func(network string) string { return s.ns + "/" + network }
	cases := map[string]struct {
		networks string
		want     attached
	}{
		"plain":        {"", attached{[]string{eth0}, []string{viaEth0}, []string{primary}}},
		"short-form":   {"local", attached{[]string{eth0, "net1 10.51.0.N/24"}, []string{viaEth0}, []string{primary, name("local") + " net1 10.51.0.N"}}},
		"short-named":  {"local@lan0", attached{[]string{eth0, "lan0 10.51.0.N/24"}, []string{viaEth0}, []string{primary, name("local") + " lan0 10.51.0.N"}}},
		"elsewhere":    {other + "/theirs", attached{[]string{eth0, "net1 10.51.1.N/24"}, []string{viaEth0}, []string{primary, other + "/theirs net1 10.51.1.N"}}},
		"list":         {"listed", attached{[]string{eth0, "net1 10.53.0.N/24"}, []string{viaEth0}, []string{primary, name("listed") + " net1 10.53.0.N"}}},
		"file-on-disk": {"on-disk", attached{[]string{eth0, "net1 10.53.1.N/24"}, []string{viaEth0}, []string{primary, name("on-disk") + " net1 10.53.1.N"}}},
		"three": {`[{"name":"local"},{"name":"lan","interface":"lan0","ips":["192.168.7.3/24"],"mac":"02:00:00:00:07:03"},{"name":"wire"}]`, attached{
			[]string{eth0, "lan0 192.168.7.3/24", "net1 10.51.0.N/24", "net3 10.52.0.N/24"},
			[]string{viaEth0},
			[]string{primary, name("local") + " net1 10.51.0.N", name("lan") + " lan0 192.168.7.3", name("wire") + " net3 10.52.0.N"},
		}},
		"route-v4": {`[{"name":"local","default-route":["10.51.0.1"]}]`, attached{
			[]string{eth0, "net1 10.51.0.N/24"},
			[]string{"via 10.51.0.N dev net1"},
			[]string{primary, name("local") + " net1 10.51.0.N"},
		}},
		"route-v6": {`[{"name":"dual","default-route":["fd54::1"]}]`, attached{
			[]string{eth0, "net1 10.54.0.N/24 fd54::N/64"},
			[]string{viaEth0, "via fd54::N dev net1"},
			[]string{primary, name("dual") + " net1 10.54.0.N fd54::N"},
		}},
		"route-both": {`[{"name":"dual","default-route":["10.54.0.1","fd54::1"]}]`, attached{
			[]string{eth0, "net1 10.54.0.N/24 fd54::N/64"},
			[]string{"via 10.54.0.N dev net1", "via fd54::N dev net1"},
			[]string{primary, name("dual") + " net1 10.54.0.N fd54::N"},
		}},
	}
	var pods []any
	for pod_, c := range cases {
		pods = append(pods, pod(pod_, node1, c.networks))
	}
	s.apply(pods...)
	for pod, c := range cases {
		t.Run(pod, func(t *testing.T) {
			s := s.in(t)
			s.ready(pod)
			s.Same("what the pod has", c.want, s.attached(pod))
		})
	}
	t.Run("requested mac", func(t *testing.T) {
		s := s.in(t)
		s.Same("the link's address", "02:00:00:00:07:03", s.exec("three", "cat /sys/class/net/lan0/address"))
	})
	t.Run("events", func(t *testing.T) {
		s := s.in(t)
		s.event("three", "AddedInterface: Add eth0 [10.244.1.")
		s.event("three", "AddedInterface: Add lan0 [192.168.7.3/24] from "+name("lan"))
	})
}

// default-network takes the place of the primary network; its network is in kube-system
// where the annotation names no namespace.
func TestI3_DefaultNetwork(t *testing.T) {
	s := begin(t)
	instead := nad("instead", bridged("instead", "10.51.2.0/24"))
	instead["metadata"] = object{"name": "instead", "namespace": "kube-system"}
	s.kubectl("create", "-f", s.file("nad.json", text(instead)))
	t.Cleanup(func() { s.kubectl("-n", "kube-system", "delete", "network-attachment-definition", "instead") })
	p := pod("p", node1, "")
	p.Annotations = map[string]string{netspec.AnnotationDefaultNetwork: "instead"}
	s.apply(p)
	s.ready("p")
	got := s.attached("p")
	s.Same("interfaces", []string{"eth0 10.51.2.N/24"}, got.Interfaces)
	s.Same("status", []string{"kube-system/instead eth0 10.51.2.N default"}, got.Status)
}

// What is wrong with a request is in the pod's events, a line for each mistake, and the
// pod is deleted like any other.
func TestI3_BadRequests(t *testing.T) {
	s := begin(t)
	broken := nad("broken", nil)
	broken["spec"] = object{"config": `{"cniVersion": "1.0.0", "type": bridge}`}
	unreadable := macvlan("unreadable")
	unreadable["ipam"] = hostLocal("172.30.0.0/99")
	s.apply(nad("lan", macvlan("lan")), broken, nad("unreadable", unreadable))
	bad := map[string]struct{ networks, words string }{
		"absent":     {"no-such", fmt.Sprintf(`pod %s/absent: network selection element 1, network %[1]s/no-such, annotation "k8s.v1.cni.cncf.io/networks": there is no such NetworkAttachmentDefinition`, s.ns)},
		"mistyped":   {`[{"name":"lan","ips":["10.0.0.300"]}]`, `key "ips": found the text "10.0.0.300" as entry 1; right would be an IP address`},
		"broken":     {"broken", `the NetworkAttachmentDefinition's spec.config is not valid JSON at byte 33`},
		"unreadable": {"unreadable", `network ` + s.ns + `/unreadable (interface net1): ADD: plugin "macvlan" (ADD): invalid CIDR address: 172.30.0.0/99`},
	}
	for name, b := range bad {
		s.apply(pod(name, node1, b.networks))
	}
	for name, b := range bad {
		s.event(name, b.words)
	}
	for name := range bad {
		s.kubectl("-n", s.ns, "delete", "pod", name, "--timeout=60s")
	}
}

// Pods on both nodes talk over the cable that macvlan attaches them to.
func TestI3_TrafficBetweenNodes(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", macvlan("lan")),
		pod("a", node1, `[{"name":"lan","ips":["192.168.8.1/24"]}]`),
		pod("b", node2, `[{"name":"lan","ips":["192.168.8.2/24"]}]`))
	s.ready("a", "b")
	s.exec("a", "ping -c 3 -W 2 -I net1 192.168.8.2")
	s.exec("b", "ping -c 3 -W 2 -I net1 192.168.8.1")
	s.Same("the peer's link", s.exec("b", "cat /sys/class/net/net1/address"), s.exec("a", `awk '$1 == "192.168.8.2" && $6 == "net1" {print $4}' /proc/net/arp`))
	// The cluster's network still works beside it.
	s.exec("a", "ping -c 1 -W 2 "+s.pod("b").Status.PodIP)
}

// A node's auxiliary chain comes behind the networks of every pod.
func TestI3_AuxiliaryChain(t *testing.T) {
	s := begin(t)
	s.apply(nad("local", bridged("local", "10.51.3.0/24")))
	for file, plugin := range map[string]object{
		"10-link.conf":   bridged("aux", "10.51.4.0/24"),
		"20-kernel.conf": {"type": "tuning", "sysctl": object{"net.ipv4.ip_default_ttl": "61"}},
	} {
		s.on(node1, "sh", "-c", "mkdir -p /etc/cni/net.d/behind && cat > /etc/cni/net.d/behind/"+file+" <<'EOF'\n"+text(plugin)+"\nEOF")
	}
	t.Cleanup(func() {
		s.on(node1, "rm", "-r", "/etc/cni/net.d/behind")
		s.install("thick")
		s.restartDaemons()
	})
	var settings object
	s.Must(json.Unmarshal([]byte(s.kubectl("-n", "kube-system", "get", "configmap", "multus-daemon-config", "-o", `jsonpath={.data.daemon-config\.json}`)), &settings))
	settings["auxiliaryCNIChainName"] = "behind"
	s.kubectl("-n", "kube-system", "patch", "configmap", "multus-daemon-config", "--type=merge", "-p", text(object{"data": object{"daemon-config.json": text(settings)}}))
	s.restartDaemons()
	s.apply(pod("plain", node1, ""), pod("one", node1, "local"))
	s.ready("plain", "one")
	s.Same("a plain pod", []string{"eth0 10.244.1.N/24", "net1 10.51.4.N/24"}, masked(s.interfaces("plain")))
	s.Same("a pod with a network", []string{"eth0 10.244.1.N/24", "net1 10.51.3.N/24", "net2 10.51.4.N/24"}, masked(s.interfaces("one")))
	s.Same("what the chain's second plugin set", "61", s.exec("one", "cat /proc/sys/net/ipv4/ip_default_ttl"))
}

// restartDaemons makes the daemons read their configuration.
func (s *suite) restartDaemons() {
	s.Helper()
	s.kubectl("-n", "kube-system", "rollout", "restart", daemonSet)
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
}
