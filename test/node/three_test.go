package node_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/netspec"
)

// threeNetworks puts a macvlan and a ptp network beside the bridge, and a pod that
// selects both; the ptp one becomes its default route.
func threeNetworks(n *node) *pod {
	n.nad("lan", object{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": object{
		"type": "host-local", "dataDir": n.path("ipam"), "subnet": "10.20.0.0/24", "rangeStart": "10.20.0.50",
	}})
	n.nad("p2p", object{"cniVersion": "1.0.0", "type": "ptp", "ipam": n.hostLocal(30)})
	return n.pod("web", selecting(`[{"name":"lan","interface":"lan0"},{"name":"p2p","default-route":["10.30.0.1"]}]`))
}

func TestC1_4ThreeNetworks(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin})
			p := threeNetworks(n)

			n.Same("the runtime's result", []string{"10.1.0.2/24"}, n.attach(p))
			n.Same("the pod's interfaces", []string{"lo", "eth0", "lan0", "net2"}, n.podLinks(p))
			seen := map[string]string{}
			for _, ifName := range []string{"eth0", "lan0", "net2"} {
				f := n.facts(p, ifName)
				seen[ifName] = fmt.Sprint(f.Addresses, f.Routes, f.Up)
			}
			n.Same("addresses and routes", map[string]string{
				"eth0": "[10.1.0.2/24] [] true",
				"lan0": "[10.20.0.50/24] [] true",
				"net2": "[10.30.0.2/24] [{0.0.0.0/0 10.30.0.1} {10.30.0.0/24 10.30.0.1} {10.30.0.1/32 invalid IP}] true",
			}, seen)
			n.Same("network-status", []netspec.StatusEntry{
				{Name: "primary", Interface: "eth0", IPs: []string{"10.1.0.2"}, MAC: "mac", Default: true},
				{Name: "default/lan", Interface: "lan0", IPs: []string{"10.20.0.50"}, MAC: "mac"},
				{Name: "default/p2p", Interface: "net2", IPs: []string{"10.30.0.2"}, MAC: "mac", Gateway: []string{"10.30.0.1"}},
			}, n.status(p))
			for _, e := range n.rawStatus(p) {
				n.Same("the MAC of "+e.Interface, n.facts(p, e.Interface).MAC, e.MAC)
			}
			n.eventually(func() error {
				return n.saidEvents(
					"AddedInterface: Add eth0 [10.1.0.2/24] from primary",
					"AddedInterface: Add lan0 [10.20.0.50/24] from default/lan",
					"AddedInterface: Add net2 [10.30.0.2/24] from default/p2p")
			})
			n.Must(n.check(p))

			n.api.ResetRequests()
			n.detach(p)
			n.Same("the pod's interfaces after DEL", []string{"lo"}, n.podLinks(p))
			n.clean()
			n.Same("writes at DEL", []string(nil), n.writes())
			n.detach(p) // once more: nothing is there, and that is fine
		})
	}
}

func TestC1_7WhatDelegatesReceive(t *testing.T) {
	n := newNode(t, setup{primary: quick, settings: object{"capabilities": object{"dns": true}}})
	n.nad("net-a", object{"cniVersion": "1.0.0", "name": "net-a", "type": "fake", "fake": n.script(nil), "capabilities": object{"dns": true, "ips": true}})
	p := n.pod("p", selecting(`[{"name":"net-a","ips":["10.2.0.7/24"]}]`))
	p.args = [][2]string{{"X", "a=b"}}
	n.attach(p)
	n.detach(p)
	own := "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=" + p.ContainerID + ";K8S_POD_UID=uid-p;X=a=b"
	type received struct{ Call, IfName, NetNS, Args, Path string }
	want, path := []received{}, fakeDir+":"+binDir+":"+pluginDir
	for _, c := range []string{"ADD primary", "ADD net-a", "DEL net-a", "DEL primary"} {
		r := received{c, "eth0", p.NetNS, own, path}
		if strings.HasSuffix(c, "net-a") {
			r.IfName, r.Args = "net1", own+";IP=10.2.0.7/24"
		}
		want = append(want, r)
	}
	got := []received{}
	for _, l := range n.calls() {
		if !l.End {
			got = append(got, received{l.Command + " " + l.Network, l.IfName, l.NetNS, l.Args, l.Path})
		}
	}
	n.Same("what delegates received", want, got)
	n.Same("capability arguments of net-a", any(object{
		"dns": object{"Servers": []any{"10.96.0.10"}, "Searches": []any{"cluster.local"}, "Options": []any{"ndots:5"}},
		"ips": []any{"10.2.0.7/24"},
	}), n.stdins("ADD")[1]["runtimeConfig"])
	n.clean()
}

// saidEvents compares the events, without regard to their order.
func (n *node) saidEvents(want ...string) error {
	var got []string
	for _, e := range n.api.Events() {
		message, _ := e["message"].(string)
		if note, ok := e["note"].(string); ok {
			message = note
		}
		got = append(got, fmt.Sprintf("%s: %s", e["reason"], message))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(want, got) {
		return fmt.Errorf("events are %q, want %q", got, want)
	}
	return nil
}

// writes are the requests to the API server that change something.
func (n *node) writes() (all []string) {
	for _, r := range n.api.Requests() {
		if r.Method != http.MethodGet && !strings.Contains(r.Path, "/events") {
			all = append(all, r.String())
		}
	}
	return all
}
