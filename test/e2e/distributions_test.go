//go:build e2e

package e2e_test

import (
	"context"
	"strings"
	"testing"
)

// layout is where the nodes of a distribution have the runtime's network configuration.
type layout struct {
	overlay   string // below deploy/overlays
	conf, bin string // folders
	primary   string // the primary network's file
	prepare   string // what a node has before, as a shell command
}

const (
	standardConf = "/etc/cni/net.d"
	standardBin  = "/opt/cni/bin"
	labPrimary   = "10-bridge.conflist" // the lab's
)

// The folders of distributions whose runtime has its own, laid on the nodes: the overlay's
// installation attaches a pod to two networks.
func TestI4_DistributionsFolders(t *testing.T) {
	for _, l := range []layout{
		{overlay: "k3s", conf: "/var/lib/rancher/k3s/agent/etc/cni/net.d", bin: "/var/lib/rancher/k3s/data/cni", primary: "10-flannel.conflist"},
		{overlay: "rke2", conf: standardConf, bin: standardBin, primary: "10-canal.conflist"},
		{
			overlay: "microk8s", conf: "/var/snap/microk8s/current/args/cni-network", bin: "/var/snap/microk8s/current/opt/cni/bin", primary: "10-calico.conflist",
			prepare: "mkdir -p /var/snap/microk8s/7964 /var/snap/microk8s/common/var/lib && ln -sfn 7964 /var/snap/microk8s/current && ln -sfn /var/lib/kubelet /var/snap/microk8s/common/var/lib/kubelet",
		},
		{overlay: "talos", conf: standardConf, bin: standardBin, primary: "10-flannel.conflist"},
	} {
		t.Run(l.overlay, func(t *testing.T) {
			s := begin(t)
			s.apply(nad("lan", bridged("lan", "10.83.0.0/16")), nad("wire", pointToPoint("wire", "10.84.0.0/24")))
			s.stopDaemons()
			t.Cleanup(func() {
				s.stopDaemons()
				s.lay(l, layout{conf: standardConf, bin: standardBin, primary: labPrimary})
				s.install("thick")
			})
			s.lay(layout{conf: standardConf, bin: standardBin, primary: labPrimary}, l)
			s.install("overlays/" + l.overlay)
			for _, node := range []string{node1, node2} {
				name := "on-" + node
				s.apply(pod(name, node, "lan,wire"))
				s.ready(name)
				s.complete(3, name)
				s.remove(node, name)
			}
		})
	}
}

// lay moves the nodes' network configuration and plugins from one layout to another.
func (s *suite) lay(from, to layout) {
	s.Helper()
	steps := []string{"set -e", "rm -f " + from.conf + "/00-multus.conf*"}
	if to.prepare != "" {
		steps = append(steps, to.prepare)
	}
	steps = append(steps, "mkdir -p "+to.conf+" "+to.bin, "[ -e "+to.conf+"/"+to.primary+" ] || mv "+from.conf+"/"+from.primary+" "+to.conf+"/"+to.primary)
	if from.bin != to.bin {
		steps = append(steps, "cp -a "+from.bin+"/. "+to.bin+"/", "rm -rf "+from.bin+"/*")
	}
	steps = append(steps, `sed -i 's#"`+from.conf+`"#"`+to.conf+`"#; s#"`+from.bin+`"#"`+to.bin+`"#' /etc/containerd/config.toml`)
	s.everywhere(strings.Join(steps, "\n"))
	for _, node := range []string{node1, node2} {
		s.Must(s.machine(node).RestartProgram(context.WithoutCancel(s.Context()), "containerd"))
		s.configured(node, "cluster")
	}
}
