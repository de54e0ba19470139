package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
)

// chain lays the plugins of an auxiliary chain beside the primary network's file.
func (n *node) chain(name string) {
	n.Helper()
	n.Must(os.Mkdir(n.path("conf/"+name), 0o755))
	for file, plugin := range map[string]object{
		"10-link.conf":     {"type": "bridge", "bridge": "br9", "ipam": n.hostLocal(9)},
		"20-kernel.conf":   {"type": "tuning", "dataDir": n.path("tuning"), "sysctl": object{"net.core.somaxconn": "321"}},
		"30-recorder.conf": {"type": "fake", "fake": n.script(nil), "own": object{"key": 9007199254740993}},
		"00-note.txt":      {"type": "absent"},
	} {
		n.write("conf/"+name+"/"+file, text(plugin))
	}
}

// kernelSetting is what a sysctl of a pod says.
func (n *node) kernelSetting(p *pod, name string) (value string) {
	n.Helper()
	n.Must(netns.Do(p.NetNS, func() error {
		raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		value = strings.TrimSpace(string(raw))
		return err
	}))
	return value
}

// Every pod gets the node's auxiliary chain behind its own networks, under the next
// interface name, plain or not, and gives it back.
func TestC1_3AuxiliaryChain(t *testing.T) {
	const chain = "node-chain"
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, settings: object{"auxiliaryCNIChainName": chain}})
			before, p, plain := n.pod("before", nil), threeNetworks(n), n.pod("plain", nil)
			n.attach(before)
			n.Same("interfaces without a chain's folder", []string{"lo", "eth0"}, n.podLinks(before))
			n.chain(chain)

			n.Same("the runtime's result is the primary network's", []string{"10.1.0.3/24"}, n.attach(p))
			n.Same("interfaces", []string{"lo", "eth0", "lan0", "net2", "net3"}, n.podLinks(p))
			n.attach(plain)
			n.Same("interfaces of a plain pod", []string{"lo", "eth0", "net1"}, n.podLinks(plain))
			for p, ifName := range map[*pod]string{p: "net3", plain: "net1"} {
				n.Same("what the chain's second plugin set", "321", n.kernelSetting(p, "net.core.somaxconn"))
				n.Same("addresses of the chain's interface", 1, len(n.facts(p, ifName).Addresses))
				n.Must(n.check(p))
			}
			n.eventually(func() error { return n.hasStatus(plain) })
			n.Same("networks of the status", "primary default/lan default/p2p; primary", networksOf(n.status(p))+"; "+networksOf(n.status(plain)))
			added := n.stdins("ADD")
			n.Same("the third plugin's own keys", any(decoded(t, []byte(`{"key":9007199254740993}`))), added[0]["own"])
			n.Same("the chain's name and version", fmt.Sprint(chain, " ", "1.1.0"), fmt.Sprint(added[0]["name"], " ", added[0]["cniVersion"]))
			n.Same("interfaces in prevResult", 3, len(added[0]["prevResult"].(object)["interfaces"].([]any))) // bridge, host and pod end

			if !thin {
				n.Must(n.stopDaemon(syscall.SIGTERM))
				alone := n.pod("alone", nil)
				n.attach(alone)
				n.Same("interfaces of a plain pod without the daemon", []string{"lo", "eth0", "net1"}, n.podLinks(alone))
				n.detach(alone)
			}
			n.Must(os.RemoveAll(n.path("conf/" + chain))) // what was attached is given back all the same
			n.forget()
			for _, p := range []*pod{before, p, plain} {
				n.detach(p)
				n.Same("interfaces of "+p.Name, []string{"lo"}, n.podLinks(p))
			}
			n.Same("calls at DEL", []string{"DEL " + chain, "DEL " + chain}, n.began())
			n.clean()
		})
	}
}

func networksOf(status []netspec.StatusEntry) string {
	var all []string
	for _, e := range status {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// One plugin of the chain fails: the pod has none of its networks, and says why.
func TestC1_3AuxiliaryChainFails(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, settings: object{"auxiliaryCNIChainName": "node-chain"}})
			n.chain("node-chain")
			n.write("conf/node-chain/40-last.conf", text(object{"type": "fake", "fake": n.script(object{"ADD": object{"error": object{"code": 123, "msg": "no meter"}}})}))
			p := threeNetworks(n)
			_, err := n.add(p)
			n.fails(err, 123, "pod default/web", "network node-chain", "net3", "no meter")
			n.Same("interfaces", []string{"lo"}, n.podLinks(p))
			n.write("conf/node-chain/40-last.conf", "{")
			plain := n.pod("plain", nil)
			_, err = n.add(plain)
			n.fails(err, 7, "pod default/plain", "auxiliaryCNIChainName", "40-last.conf")
			n.clean()
		})
	}
}

// The primary network's list takes the plugins of the folder of its name (CNI 1.1), for
// plain pods without the daemon too.
func TestC1_6SubdirectoryChain(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, primary: func(n *node) object {
				conf := n.bridged("primary", 1)
				conf["cniVersion"], conf["loadOnlyInlinedPlugins"] = "1.1.0", false
				n.Must(os.Mkdir(n.path("conf/primary"), 0o755))
				n.write("conf/primary/20-second.conf", text(object{"type": "fake", "fake": n.script(nil), "mark": "second"}))
				n.write("conf/primary/10-first.conf", text(object{"type": "fake", "fake": n.script(nil), "mark": "first"}))
				return conf
			}})
			p := n.pod("p", nil)
			marks := func(verb string) (all []any) {
				for _, stdin := range n.stdins(verb) {
					all = append(all, stdin["mark"])
				}
				n.forget()
				return all
			}
			attach := func() {
				n.attach(p)
				n.Same("plugins at ADD", []any{"first", "second"}, marks("ADD"))
				n.Must(n.check(p))
				n.Same("plugins at CHECK", []any{"first", "second"}, marks("CHECK"))
				n.detach(p)
				n.Same("plugins at DEL", []any{"second", "first"}, marks("DEL"))
			}
			attach()
			if !thin {
				n.Must(n.stopDaemon(syscall.SIGTERM))
				attach()
			}
			n.clean()
		})
	}
}
