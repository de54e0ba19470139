package node_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/containernetworking/cni/pkg/types"
)

// decoded is JSON with its numbers as they are written.
func decoded(t *testing.T, raw []byte) object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return o
}

// netA is a list of two plugins, full of what a decoder could lose.
func (n *node) netA() string {
	return `{"cniVersion":"1.0.0","name":"net-a","x-top":{"deep":[{"n":9007199254740993},null,1.50,"<&>"]},"plugins":[
		{"type":"fake","fake":` + text(n.script(object{"ADD": object{"result": answer("10.5.0.9/24")}})) + `,"big":9007199254740993,"capabilities":{"ips":true,"mac":true},
		 "ipam":{"type":"made-up","u1":18446744073709551615,"u2":[1,2],"u3":{"a":{"b":"c"}},"u4":null,"u5":true,"u6":1e400}},
		{"type":"fake","fake":` + text(n.script(nil)) + `,"second":{"exact":0.10},"capabilities":{"portMappings":true,"ips":true}}]}`
}

func TestT13FaithfulCheckAndDel(t *testing.T) {
	changes := map[string]func(*node){
		"NAD changed": func(n *node) { n.nad("net-a", n.fake("other", nil)) },
		"NAD deleted": func(n *node) { n.api.DeleteNAD(podNamespace, "net-a") },
		"API away":    func(n *node) { n.api.Refuse() },
		"thin":        func(n *node) { n.api.DeleteNAD(podNamespace, "net-a"); n.api.Refuse() },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: name == "thin", settings: object{"checkDelegates": true}})
			n.api.PutNAD(metav1.ObjectMeta{Namespace: podNamespace, Name: "net-a"}, n.netA())
			p := n.pod("p", selecting(`[{"name":"net-a","ips":["10.5.0.9/24"],"mac":"02:00:00:00:05:09","deviceID":"0000:03:00.1","cni-args":{"exact":9007199254740993}}]`))
			n.attach(p)
			added := n.stdins("ADD")
			n.Same("calls", 2, len(added))
			result := decoded(t, []byte(text(answer("10.5.0.9/24"))))
			n.Same("the number in the first plugin", any(json.Number("9007199254740993")), added[0]["big"])
			n.Same("the pod's device", "0000:03:00.1 0000:03:00.1", fmt.Sprint(added[0]["deviceID"], " ", added[1]["pciBusID"]))
			n.Same("the pod's cni-args", any(object{"cni": object{"exact": json.Number("9007199254740993")}}), added[0]["args"])
			n.Same("prevResult of the second plugin", any(result), added[1]["prevResult"])

			change(n)
			n.forget()
			n.Must(n.check(p))
			n.detach(p)
			for i := range added {
				added[i]["prevResult"] = result
			}
			n.Same("stdin at CHECK", added, n.stdins("CHECK"))
			n.Same("stdin at DEL", []object{added[1], added[0]}, n.stdins("DEL"))
			n.clean()
		})
	}
}

// stdins are what the fake plugin got, by call.
func (n *node) stdins(command string) (all []object) {
	n.Helper()
	for _, l := range n.calls() {
		if !l.End && l.Command == command {
			all = append(all, decoded(n.T.T, l.Stdin))
		}
	}
	return all
}

func TestT25MixedVersions(t *testing.T) {
	n := newNode(t, setup{settings: object{"checkDelegates": true}, primary: func(n *node) object {
		c := n.bridged("primary", 1)
		c["cniVersion"] = "1.1.0"
		return c
	}})
	// A bridge each: the plugin's CHECK fails where a later port has changed its bridge's MAC.
	for i, v := range []struct{ name, version string }{{"v031", "0.3.1"}, {"v040", "0.4.0"}, {"v100", "1.0.0"}} {
		n.nad(v.name, object{"cniVersion": v.version, "name": v.name, "plugins": []any{
			object{"type": "bridge", "bridge": fmt.Sprintf("br%d", 2+i), "ipam": n.hostLocal(2 + i)}, object{"type": "fake", "fake": n.script(nil)},
		}})
	}
	p := n.pod("p", selecting("v031,v040,v100"))
	n.attach(p)
	n.Same("interfaces", []string{"lo", "eth0", "net1", "net2", "net3"}, n.podLinks(p))
	n.Must(n.check(p))
	n.Must(n.cniStatus())
	n.detach(p)
	n.Same("calls", []string{"ADD v031", "ADD v040", "ADD v100", "CHECK v040", "CHECK v100", "DEL v100", "DEL v040", "DEL v031"}, n.began())
	for _, l := range n.stdins("DEL") {
		_, has := l["prevResult"]
		n.Same("prevResult at the DEL of "+l["name"].(string), l["cniVersion"] != "0.3.1", has)
	}
	n.clean()
}

// The answer is in the version that the runtime asks in, whatever the delegates speak.
func TestT25AnswerInTheVersionAsked(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, setup{settings: object{"cniVersion": version}})
			p := n.pod("p", nil)
			cached := func() object {
				return decoded(t, []byte(n.read("runtime/results/multus-cni-network-"+p.ContainerID+"-eth0")))["result"].(object)
			}
			n.attach(p)
			n.Same("the result's version", any(version), cached()["cniVersion"])
			if version != "0.3.1" {
				n.Must(n.check(p))
			}
			n.detach(p)
			n.clean()
		})
	}
}

// CRI-O checks every pod right after its ADD, and deletes with what it has cached.
func TestR18CheckNoticesWhatIsLost(t *testing.T) {
	n := newNode(t, setup{})
	p := threeNetworks(n)
	n.attach(p)
	n.Must(n.check(p))
	n.loseAddress(p, "lan0")
	err := n.check(p)
	n.fails(err, types.ErrInternal, "pod default/web", "network default/lan", "lan0", "10.20.0.50/24")
	n.detach(p)
	n.clean()
}

// The runtime knows two of three sandboxes.
func TestT25GCFreesTheStaleAlone(t *testing.T) {
	n := newNode(t, setup{primary: func(n *node) object {
		c := n.bridged("primary", 1)
		c["cniVersion"] = "1.1.0"
		return c
	}})
	n.nad("net-b", object{"cniVersion": "1.1.0", "name": "net-b", "plugins": []any{
		object{"type": "bridge", "bridge": "br2", "ipam": n.hostLocal(2)}, object{"type": "fake", "fake": n.script(nil)},
	}})
	var pods []*pod
	for _, name := range []string{"one", "two", "stale"} {
		p := n.pod(name, selecting("net-b"))
		n.attach(p)
		pods = append(pods, p)
	}
	stale := pods[2]
	n.age(pods...)
	n.forgetInRuntime(stale)
	n.Must(n.gc(pods[:2]...))
	n.Same("leases", []string{"10.2.0.2", "10.2.0.3", "10.1.0.2", "10.1.0.3"}, n.leases())
	n.Same("calls", []string{"ADD net-b", "ADD net-b", "ADD net-b", "DEL net-b", "GC net-b"}, n.began())
	var valid []any
	for _, p := range pods[:2] {
		valid = append(valid, object{"containerID": p.ContainerID, "ifname": "net1"})
	}
	n.Same("attachments that net-b is told of", any(valid), n.stdins("GC")[0]["cni.dev/valid-attachments"])
	n.Same("interfaces of the stale pod", []string{"lo"}, n.podLinks(stale))
	for _, p := range pods[:2] {
		n.Must(n.check(p))
		n.detach(p)
	}
	n.clean()
}

// A NAD that its plugins can neither attach nor delete: its pod gets the plugin's words,
// and is not kept from going.
func TestT17NoPodIsKeptByABadNAD(t *testing.T) {
	n := newNode(t, setup{})
	ipam := n.hostLocal(20)
	ipam["ranges"] = []any{[]any{object{"subnet": "172.30.0.0/99"}}}
	n.nad("lan", object{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "ipam": ipam})
	p := n.pod("p", selecting("lan"))
	_, err := n.add(p)
	n.Fails(err, types.ErrInternal, `network default/lan (interface net1): ADD: plugin "macvlan" (ADD): invalid CIDR address: 172.30.0.0/99`)
	n.detach(p)
	n.Must(n.del(p))
	rec, err := n.record(p)
	n.Must(err)
	n.Same("what is still owed", []bool{true, false}, []bool{rec.Outcomes[0].Detached, rec.Outcomes[1].Detached})
	n.age(p)
	n.detach(p)
	n.clean()
}
