package node_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/multus-thick/multus/internal/config"
)

// crio is a node whose runtime is CRI-O, with ocicni's use of libcni.
type crio struct{ *node }

// arguments are what CRI-O passes: in this order, with capabilities of its own.
func (c crio) arguments(p *pod) *libcni.RuntimeConf {
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	for key, value := range p.Annotations {
		annotations[key] = value
	}
	return &libcni.RuntimeConf{
		ContainerID: p.ContainerID, NetNS: p.NetNS, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID},
			{"K8S_POD_UID", p.UID},
		},
		CapabilityArgs: map[string]any{
			"cgroupPath": "/kubepods.slice/pod" + p.UID, config.PodAnnotationsCapability: annotations,
			"bandwidth": map[string]int{"ingressRate": 1000, "ingressBurst": 4 << 30, "egressRate": 1000, "egressBurst": 4 << 30},
		},
	}
}

// add is an ADD and the CHECK right after it. The pod's address comes from libcni's cache.
func (c crio) add(p *pod) (address string, err error) {
	cni, list, err := (&call{node: c.node}).load()
	if err != nil {
		return "", err
	}
	rc := c.arguments(p)
	if _, err := cni.AddNetworkList(c.Context(), list, rc); err != nil {
		return "", err
	}
	if err := cni.CheckNetworkList(c.Context(), list, rc); err != nil {
		return "", err
	}
	cached, err := cni.GetNetworkListCachedResult(list, rc)
	if err != nil {
		return "", err
	}
	result, err := types100.GetResult(cached)
	if err != nil || len(result.IPs) == 0 {
		return "", fmt.Errorf("no address in the cached result %v: %w", cached, err)
	}
	return result.IPs[0].Address.String(), nil
}

// del is the one DEL that a sandbox gets, with configuration and arguments as they are in
// libcni's cache. Where it fails, CRI-O forgets the sandbox.
func (c crio) del(p *pod) error {
	c.Helper()
	cni, list, err := (&call{node: c.node}).load()
	c.Must(err)
	raw, rc, err := cni.GetNetworkListCachedConfig(list, &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.NetNS, IfName: "eth0"})
	c.Must(err)
	cached, err := libcni.ConfListFromBytes(raw)
	c.Must(err)
	err = cni.DelNetworkList(context.WithoutCancel(c.Context()), cached, rc)
	if err != nil {
		c.forgetInRuntime(p)
	}
	return err
}

// recording is a network that records, and gets what CRI-O hands over.
func (c crio) recording(name string, steps object) object {
	conf := c.fake(name, steps)
	conf["capabilities"] = object{config.PodAnnotationsCapability: true, "cgroupPath": true, "bandwidth": true}
	return conf
}

// Between a pod's ADD and its DEL the node's configuration, its primary network and the
// pod's definition change, and the daemon goes.
func TestI2_CRIOSequence(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			c := crio{newNode(t, setup{thin: thin, settings: object{"capabilities": object{"cgroupPath": true, "bandwidth": true}}})}
			c.nad("rec", c.recording("rec", object{"ADD": object{"result": answer("10.5.0.9/24")}}))
			p, plain := threeNetworks(c.node), c.pod("plain", nil)
			p.Annotations = selecting("lan,rec")
			c.api.PutPod(c.apiPod(p))
			for i, p := range []*pod{p, plain} {
				got, err := c.add(p)
				c.Must(err)
				c.Same("the address of "+p.Name, fmt.Sprintf("10.1.0.%d/24", 2+i), got)
			}
			added := c.stdins("ADD")[0]
			c.Same("what CRI-O handed over", any(decoded(t, []byte(text(c.arguments(p).CapabilityArgs)))), added["runtimeConfig"])

			c.api.DeleteNAD(podNamespace, "rec")
			if thin {
				c.write("conf/10-primary.conflist", text(c.bridged("another", 7)))
			} else {
				c.write("conf/05-first.conflist", text(c.bridged("another", 7)))
				fresh := c.pod("fresh", nil)
				c.eventually(func() error {
					got, err := c.add(fresh)
					c.Must(err)
					c.Must(c.del(fresh))
					if got != "10.7.0.2/24" {
						return fmt.Errorf("a pod still gets %s", got)
					}
					return nil
				})
				c.Must(c.stopDaemon(syscall.SIGTERM))
			}
			c.forget()
			c.Must(c.del(p))
			c.Must(c.del(plain))
			added["prevResult"] = decoded(t, []byte(text(answer("10.5.0.9/24"))))
			c.Same("stdin at DEL", []object{added}, c.stdins("DEL"))
			c.Same("interfaces", []string{"lo"}, c.podLinks(p))
			c.Same("interfaces of the plain pod", []string{"lo"}, c.podLinks(plain))
			c.clean()
		})
	}
}

// CRI-O does not repeat a DEL that failed: what it left goes with the next pod's DEL.
func TestR16CRIORepeatsNoDel(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			c := crio{newNode(t, setup{thin: thin})}
			c.nad("rec", c.recording("rec", object{"DEL": object{"failWhile": c.path("down"), "error": object{"code": 100, "msg": "address store down"}}}))
			p, next := c.pod("p", selecting("rec")), c.pod("next", nil)
			for _, p := range []*pod{p, next} {
				_, err := c.add(p)
				c.Must(err)
			}
			c.write("down", "")
			c.fails(c.del(p), 100, "pod default/p", "network default/rec", "address store down")
			c.Must(os.Remove(c.path("down")))
			c.removeSandbox(p)
			c.age(p)
			c.Must(c.del(next))
			c.Same("calls", []string{"ADD rec", "DEL rec", "DEL rec"}, c.began())
			c.clean()
		})
	}
}

// CRI-O starts after a crash, before the daemon, and tells which sandboxes it knows. All
// others are given back, however far they had come; one that has just been made is left.
func TestT25CRIOStartsAfterACrash(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			c := crio{newNode(t, setup{thin: thin})}
			c.nad("gated", c.recording("gated", object{"ADD": object{"waitFor": c.path("open")}}))
			c.nad("lan", c.bridged("lan", 2))
			cut := c.pod("cut", selecting("lan,gated"))
			r := c.begin("ADD", cut)
			c.awaitCall("ADD gated")
			r.kill()
			c.write("open", "")

			pods := map[string]*pod{}
			for _, name := range []string{"known", "unknown", "rebooted", "young"} {
				pods[name] = c.pod(name, selecting("lan"))
				_, err := c.add(pods[name])
				c.Must(err)
			}
			c.forgetInRuntime(pods["rebooted"])
			c.removeSandbox(pods["rebooted"])
			c.forgetInRuntime(pods["young"])
			c.age(cut, pods["known"], pods["unknown"], pods["rebooted"])
			if !thin {
				_ = c.stopDaemon(syscall.SIGKILL)
			}
			c.Must(c.gc(pods["known"]))
			c.Must(c.check(pods["known"]))
			c.Must(c.check(pods["young"]))
			c.Same("leases", 4, len(c.leases()))
			for _, p := range []*pod{cut, pods["unknown"]} {
				c.Same("interfaces of "+p.Name, []string{"lo"}, c.podLinks(p))
			}
			c.Same("calls", []string{"ADD gated", "DEL gated"}, c.began())
			for _, name := range []string{"known", "young"} {
				c.detach(pods[name])
			}
			c.clean()
		})
	}
}
