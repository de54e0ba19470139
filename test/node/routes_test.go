package node_test

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// dual is a bridge network of both families, with a default route of each.
func (n *node) dual(name string, net int) object {
	subnet := func(s string) []any { return []any{object{"subnet": s}} }
	return object{"cniVersion": "1.0.0", "name": name, "plugins": []any{object{
		"type": "bridge", "bridge": fmt.Sprintf("br%d", net), "isGateway": true, "ipam": object{
			"type": "host-local", "dataDir": n.path("ipam"),
			"ranges": []any{subnet(fmt.Sprintf("10.%d.0.0/24", net)), subnet(fmt.Sprintf("fd00:%d::/64", net))},
			"routes": []any{object{"dst": "0.0.0.0/0"}, object{"dst": "::/0"}},
		},
	}}}
}

// defaults are the default routes through an interface of a pod.
func (n *node) defaults(p *pod, ifName string) (all []string) {
	n.Helper()
	for _, r := range n.facts(p, ifName).Routes {
		if r.Dst.Bits() == 0 {
			all = append(all, r.GW.String())
		}
	}
	return all
}

func TestT21DefaultRoutesByAnnotation(t *testing.T) {
	const four, six = "10.2.0.1", "fd00:2::1"
	tests := map[string]struct {
		wish       string
		eth0, net1 []string
		gateway    []string // of net1 in the status
	}{
		"none":  {`{"name":"net-a"}`, []string{"10.1.0.1", "fd00:1::1"}, nil, nil},
		"v4":    {`{"name":"net-a","default-route":["10.2.0.1"]}`, []string{"fd00:1::1"}, []string{four}, []string{four}},
		"v6":    {`{"name":"net-a","default-route":["fd00:2::1"]}`, []string{"10.1.0.1"}, []string{six}, []string{six}},
		"both":  {`{"name":"net-a","default-route":["10.2.0.1","fd00:2::1"]}`, nil, []string{four, six}, []string{four, six}},
		"empty": {`{"name":"routed","default-route":[]}`, nil, []string{four, six}, []string{four, six}},
		// Its own v6 route is nobody's wish, and stays as it is.
		"there already": {`{"name":"routed","default-route":["10.2.0.1"]}`, []string{"fd00:1::1"}, []string{four, six}, []string{four}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{primary: func(n *node) object { return n.dual("primary", 1) }})
			n.nad("routed", n.dual("routed", 2))
			plain := n.dual("net-a", 2)
			delete(plain["plugins"].([]any)[0].(object)["ipam"].(object), "routes")
			n.nad("net-a", plain)
			p := n.pod("p", selecting("["+tt.wish+"]"))
			n.attach(p)
			n.Same("default routes of eth0", tt.eth0, n.defaults(p, "eth0"))
			n.Same("default routes of net1", tt.net1, n.defaults(p, "net1"))
			n.Same("gateways of net1 in the status", tt.gateway, n.status(p)[1].Gateway)
			n.Must(n.check(p))
			n.detach(p)
			n.clean()
		})
	}
}

func TestT21FamilyThatTheNetworkLacks(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("v4only", n.bridged("v4only", 2))
	p := n.pod("p", selecting(`[{"name":"v4only","default-route":["fd00:2::1"]}]`))
	_, err := n.add(p)
	n.fails(err, types.ErrInternal, "pod default/p", "fd00:2::1")
	n.Same("interfaces", []string{"lo"}, n.podLinks(p))
	n.clean()
}
