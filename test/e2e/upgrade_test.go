//go:build e2e

package e2e_test

import (
	"os"
	"strings"
	"testing"
)

// install applies a kustomization of deploy/ and waits until it runs everywhere.
func (s *suite) install(kustomization string) {
	s.Helper()
	s.kubectl("apply", "-k", root+"/deploy/"+kustomization)
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	s.multusConfigured()
}

// uninstall does what docs/install.md says: the manifests, and then what is on the nodes.
func (s *suite) uninstall(kustomization string) {
	s.Helper()
	image := s.kubectl("-n", "kube-system", "get", daemonSet, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.kubectl("delete", "-k", root+"/deploy/"+kustomization, "--ignore-not-found", "--timeout=120s")
	s.kubectl("-n", "kube-system", "wait", "--for=delete", "pod", "-l", "name=multus", "--timeout=60s")
	for _, node := range []string{node1, node2} {
		said := s.kubectl("-n", s.ns, "debug", "node/"+node, "--image="+image, "--profile=sysadmin", "--attach", "--", "multusctl", "uninstall")
		if left, err := tryOn(s.Context(), node, "sh", "-c", "ls -d /etc/cni/net.d/00-multus* /etc/cni/net.d/multus.d /opt/cni/bin/multus* /opt/cni/bin/passthru /run/multus 2>/dev/null"); err == nil || left != "" {
			s.Fatalf("multusctl uninstall left on %s:\n%s\n%s", node, left, said)
		}
		s.configured(node, "cluster")
	}
}

func (s *suite) multusConfigured() {
	s.Helper()
	for _, node := range []string{node1, node2} {
		s.configured(node, "multus-cni-network")
	}
}

// whole makes a pod with one network and sees that it has it.
func (s *suite) whole(name, node string) {
	s.Helper()
	s.apply(pod(name, node, "lan"))
	s.ready(name)
	s.complete(2, name)
}

// Thick to thin and back, with pods running.
func TestI3_ThickToThinAndBack(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.74.0.0/16")))
	t.Cleanup(func() { s.install("thick") })
	s.whole("thick", node1)
	s.stopDaemons()
	s.install("thin")
	s.whole("thin", node1)
	s.remove(node1, "thick", "thin")
	s.whole("kept", node1)
	s.stopDaemons()
	s.install("thick")
	s.whole("again", node1)
	s.remove(node1, "kept", "again")
}

// After uninstalling, pods that run keep running and are deleted, and new ones start.
func TestI3_Uninstall(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.75.0.0/16")))
	t.Cleanup(func() { s.install("thick") })
	s.whole("before", node1)
	s.kubectl("-n", s.ns, "delete", "pod", "before", "--timeout=60s")
	s.uninstall("thick")
	s.apply(pod("after", node1, ""))
	s.ready("after")
	s.Same("interfaces", []string{"eth0 10.244.1.N/24"}, masked(s.interfaces("after")))
	s.kubectl("-n", s.ns, "delete", "pod", "after", "--timeout=60s")
}

// A node that Multus v4 thick leaves behind, its pods running, gets our image and gives it
// back. Pods of either are deleted by the other, and no address is lost.
func TestI3_FromMultusV4AndBack(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.76.0.0/16")))
	t.Cleanup(func() {
		s.on(node2, "rm", "-f", "/etc/cni/v4-networks.json")
		s.install("thick")
	})
	s.uninstall("thick")
	s.putV4(node2)
	v4Pods := []string{"v4-1", "v4-2", "v4-3", "v4-4"}
	for _, name := range v4Pods {
		s.apply(pod(name, node2, ""))
	}
	s.ready(v4Pods...)
	for _, name := range v4Pods {
		s.Same("interfaces of "+name, []string{"eth0 10.244.2.N/24", "lan0 10.77.0.N/16", "net2 10.78.0.N/16"}, masked(s.interfaces(name)))
	}

	s.install("thick")
	s.remove(node2, "v4-1", "v4-2")
	s.whole("ours-1", node2)
	s.whole("ours-2", node2)
	s.remove(node2, "v4-3", "ours-1")

	s.stopDaemons()
	s.putV4(node2)
	s.remove(node2, "v4-4", "ours-2")
	s.apply(pod("v4-5", node2, ""))
	s.ready("v4-5")
	s.remove(node2, "v4-5")
}

// putV4 puts the stand-in for Multus v4 onto a node, with v4's generated configuration
// (in testdata) and two networks for every pod.
func (s *suite) putV4(node string) {
	s.Helper()
	s.copyTo(node, v4Plugin, "/opt/cni/bin/multus-shim")
	networks := []object{
		{"Name": s.ns + "/lan", "Interface": "lan0", "Config": bridged("v4lan", "10.77.0.0/16")},
		{"Name": s.ns + "/wire", "Config": object{"cniVersion": "1.0.0", "name": "v4wire", "plugins": []any{bridged("v4wire", "10.78.0.0/16")}}},
	}
	s.on(node, "sh", "-c", "cat > /etc/cni/v4-networks.json <<'EOF'\n"+text(networks)+"\nEOF")
	conf, err := os.ReadFile("testdata/v4/00-multus.conf")
	s.Must(err)
	ours := strings.Replace(string(conf), "10-primary.conflist", "10-bridge.conflist", 1)
	s.on(node, "sh", "-c", "cat > /etc/cni/net.d/.v4 <<'EOF'\n"+ours+"\nEOF\nmv /etc/cni/net.d/.v4 /etc/cni/net.d/00-multus.conf")
	s.configured(node, "multus-cni-network")
}

// The manifests that users have, with only the image changed: v4's thick one and v3's thin
// one of EKS, whose primary network is pinned by name.
func TestI3_UsersManifests(t *testing.T) {
	for _, sample := range []string{"eks-thick-v4", "eks-thin-v3"} {
		t.Run(sample, func(t *testing.T) {
			s := begin(t)
			s.apply(nad("lan", bridged("lan", "10.79.0.0/16")))
			s.stopDaemons()
			t.Cleanup(func() {
				s.stopDaemons()
				s.everywhere("rm -f /etc/cni/net.d/10-aws.conflist /etc/cni/net.d/00-multus.conf*")
				s.install("thick")
			})
			s.everywhere(`cd /etc/cni/net.d && rm -f 00-multus.conf* && sed 's/"cniVersion": *"[^"]*"/"cniVersion": "0.4.0"/; s/"name": *"cluster"/"name": "aws-cni"/' 10-bridge.conflist > 10-aws.conflist`)
			s.kubectl("apply", "-k", root+"/test/deploy/samples/"+sample)
			s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
			s.multusConfigured()
			for _, node := range []string{node1, node2} {
				s.whole("on-"+node, node)
				s.Same("the primary network", "aws-cni", s.status("on-" + node)[0].Name)
				s.remove(node, "on-"+node)
			}
		})
	}
}

// everywhere runs a shell command on each node.
func (s *suite) everywhere(command string) {
	s.Helper()
	for _, node := range []string{node1, node2} {
		s.on(node, "sh", "-c", command)
	}
}
