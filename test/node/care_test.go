package node_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/netspec"
)

// runs lets the API say that a pod runs, with an address.
func (n *node) runs(p *pod, ip string) {
	o := n.apiPod(p)
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}}}
	n.api.PutPod(o)
}

// abandoned is a pod that was attached an hour ago, and of which everything is gone since
// but what Multus keeps: neither the runtime nor anybody else asked for its deletion.
func abandoned(n *node) *pod {
	p := threeNetworks(n)
	n.attach(p)
	n.age(p)
	n.removeSandbox(p)
	n.api.DeletePod(p.Namespace, p.Name)
	return p
}

// A daemon that has the host gives back what a pod that is gone has left.
func TestI5_DaemonCollectsOrphans(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/", "binDir": pluginDir}})
	keeps := n.pod("keeps", nil)
	n.attach(keeps)
	n.age(keeps)
	abandoned(n)
	n.metric(`multus_orphans_collected_total{outcome="ok"} 1`)
	n.Same("leases", []string{"10.1.0.2"}, n.leases())
	if _, err := n.record(keeps); err != nil {
		t.Errorf("the pod that lives: %v", err)
	}
	n.detach(keeps)
	n.clean()
}

// Where the daemon has not, it names them, and the plugin does so when it is called next.
func TestR16PluginCollectsOrphans(t *testing.T) {
	n := newNode(t, setup{})
	p := abandoned(n)
	alive := n.pod("alive", nil)
	n.attach(alive)
	n.age(alive)
	n.write("run/"+api.OrphansName, p.ContainerID+"\n"+alive.ContainerID+"\nresults/none-x-eth0\n")
	n.Must(n.cniStatus())
	n.Must(n.cniStatus())
	n.Same("leases", []string{"10.1.0.3"}, n.leases())
	if _, err := os.Stat(n.path("run/" + api.OrphansName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("orphans that were tried are still named: %v", err)
	}
	n.detach(alive)
	n.clean()
}

// A pod runs whose sandbox nobody knows, and its status tells of an earlier one.
func TestR1StrayOnANode(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("lan", n.bridged("lan", 2))
	p := n.sandbox("p", selecting("lan"))
	p.Annotations[netspec.AnnotationStatus] = `[{"name":"primary","interface":"eth0","ips":["10.1.0.2"],"default":true},{"name":"default/lan","interface":"net1","ips":["10.2.0.2"]}]`
	known := n.pod("known", selecting("lan"))
	n.attach(known)
	n.runs(p, "10.1.0.9")
	n.runs(known, "10.1.0.2")
	n.metric("multus_strays 1")
	n.eventually(func() error {
		if got := n.status(p); len(got) != 1 || got[0].IPs[0] != "10.1.0.9" || got[0].Name != "primary" {
			return fmt.Errorf("the status is %v", got)
		}
		return nil
	})
	condition := fmt.Sprint(n.api.Pod(p.Namespace, p.Name)["status"])
	if !strings.Contains(condition, "multus-cni.io/NetworksAttached") || !strings.Contains(condition, "status:False") {
		t.Errorf("the pod's status is %s", condition)
	}
	n.detach(known)
	n.clean()
}

// What a pod has lost comes back, and the plugins are not run for it.
func TestI5_DriftIsRepaired(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/", "binDir": pluginDir, "checkInterval": "100ms", "checkPolicy": "repair"}})
	p := threeNetworks(n)
	n.attach(p)
	before := n.facts(p, "lan0")
	n.loseAddress(p, "lan0")
	n.metric(`multus_drift_total{aspect="address",repaired="yes"} 1`)
	n.Must(n.stopDaemon(syscall.SIGTERM)) // it looks all the time
	n.Same("lan0", fmt.Sprint(before), fmt.Sprint(n.facts(p, "lan0")))
	n.Must(n.check(p))
	n.detach(p)
	n.clean()
}
