package migrate

import "strings"

// The node's usual folders, and the pod's names of them in our manifests.
const (
	usualConf    = "/etc/cni/net.d"
	usualBin     = "/opt/cni/bin"
	usualKubelet = "/var/lib/kubelet"
	podConf      = "/host/etc/cni/net.d"
	podSocket    = "/host/run/multus"
)

// distribution is an overlay of deploy/overlays, by what sets it apart. A test compares the
// table with the overlays.
type distribution struct {
	name, conf, bin, kubelet string
	primary                  string // the file that the overlay pins
	sayConf                  bool   // the mounts do not prove the folder's path: hostCniConfigDir does
}

func distributions() []distribution {
	usual := func(name, primary string, sayConf bool) distribution {
		return distribution{name, usualConf, usualBin, usualKubelet, primary, sayConf}
	}
	return []distribution{
		{"k3s", "/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/rancher/k3s/data/cni", usualKubelet, "", true},
		{"microk8s", "/var/snap/microk8s/current/args/cni-network", "/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/common/var/lib/kubelet", "", true},
		{"openshift", "/etc/kubernetes/cni/net.d", "/var/lib/cni/bin", usualKubelet, "10-ovn-kubernetes.conf", true},
		{"gke", usualConf, "/home/kubernetes/bin", usualKubelet, "", true},
		usual("eks", "10-aws.conflist", true),
		usual("rke2", "10-canal.conflist", false),
		usual("talos", "", true),
		usual("cilium", "05-cilium.conflist", false),
		usual("flannel", "10-flannel.conflist", false),
		usual("calico", "10-calico.conflist", false),
		usual("kubeadm", "", false),
	}
}

// clues are what a distribution is told by.
type clues struct {
	conf, bin, netns, image, primary string
	nodes                            string // affinity and node selector, as text
}

// guess is the distribution, and what speaks for it: folders of its own first, then what only
// it has, and the primary network last.
func guess(c clues) (d distribution, because string) {
	for _, d := range distributions() {
		var why string
		switch {
		case d.conf != usualConf && c.conf == d.conf:
			why = "the runtime's configuration is in " + d.conf
		case d.conf == usualConf && d.bin != usualBin && c.bin == d.bin:
			why = "the plugins are in " + d.bin
		case d.name == "eks" && strings.Contains(c.nodes, "eks.amazonaws.com/"):
			why = "the nodes are chosen by eks.amazonaws.com/compute-type"
		case d.primary != "" && d.name != "rke2" && c.primary == d.primary:
			why = "the primary network is " + d.primary
		case d.name == "rke2" && strings.HasPrefix(c.image, "rancher/"):
			why = "the image is Rancher's, and the folders are the usual ones"
		case d.name == "talos" && c.netns == "/var/run/netns":
			why = "/var/run/netns is mounted"
		case d.name == "kubeadm":
			why = "the folders are the usual ones"
		}
		if why != "" {
			return d, why
		}
	}
	return distribution{}, "" // not reached: the last one is always taken
}
