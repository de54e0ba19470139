//go:build e2e

package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// eks makes nodes that look like those of Amazon EKS: the VPC CNI's file is called
// 10-aws.conflist, and of an old version. It is written by late. At the test's end the lab's
// file is back, and Multus as it was.
func (s *suite) eks() (late func()) {
	s.Helper()
	s.stopDaemons()
	s.Cleanup(func() {
		s.stopDaemons()
		s.everywhere("cd " + standardConf + " && rm -f 05-* 10-aws.conflist 00-multus.conf* && { [ ! -e ../bridge ] || mv ../bridge " + labPrimary + "; }")
		s.install("thick")
	})
	s.everywhere("cd " + standardConf + " && rm -f 00-multus.conf* && mv " + labPrimary + " ../bridge")
	return func() {
		s.Helper()
		s.everywhere("cd " + standardConf + ` && sed 's/"cniVersion": *"[^"]*"/"cniVersion": "0.4.0"/; s/"name": *"cluster"/"name": "aws-cni"/' ../bridge > .aws && mv .aws 10-aws.conflist`)
	}
}

// installEKS installs the overlay for EKS, whose image is pulled from a registry: the nodes
// have it already.
func (s *suite) installEKS() {
	s.Helper()
	rendered := s.kubectl("kustomize", root+"/deploy/overlays/eks")
	_, image, found := strings.Cut(rendered, "image: ")
	image, _, _ = strings.Cut(image, "\n")
	if !found {
		s.Fatal("the overlay names no image")
	}
	ours := "localhost/multus-cni" + image[strings.LastIndex(image, ":"):]
	for _, node := range []string{node1, node2} {
		s.on(node, "ctr", "-n", "k8s.io", "images", "tag", "--force", ours, image)
	}
	s.kubectl("apply", "-k", root+"/deploy/overlays/eks")
}

// A node of EKS after a boot: another program's file is there before the VPC CNI's. Multus
// waits, takes the right one when it comes, and no other.
func TestI4_EKSFileComesLate(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.85.0.0/16")))
	late := s.eks()
	s.everywhere("cat > " + standardConf + `/05-istio-cni.conflist <<'EOF'
{"cniVersion":"1.0.0","name":"istio","plugins":[{"type":"loopback"}]}
EOF`)
	s.installEKS()
	s.within(patience, func() error {
		said, err := tryKubectl(s.Context(), "", "-n", "kube-system", "logs", "-l", "app=multus", "--tail=-1")
		if n := strings.Count(said, "10-aws.conflist"); err != nil || n < 2 {
			return fmt.Errorf("the daemons do not say what they wait for: %w: %s", err, said)
		}
		return nil
	})
	s.everywhere("! ls " + standardConf + "/00-multus.conf 2>/dev/null")
	late()
	begin := time.Now()
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	s.multusConfigured()
	t.Logf("in use %.1f s after the file came", time.Since(begin).Seconds())
	s.whole("p", node1)
	s.Same("the primary network", "aws-cni", s.status("p")[0].Name)
	s.remove(node1, "p")
}

// Who does what `multusctl migrate` prints gets from the thin installation that users of EKS
// have to the thick one and back, with pods running. After each step they have what they had,
// and new ones come up whole.
func TestI4_MigrationFollowed(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.86.0.0/16")))
	s.eks()()
	s.kubectl("apply", "-k", root+"/test/deploy/samples/eks-thin-v3")
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	s.multusConfigured()
	names := s.burst("old", 10, node1, "lan")
	s.allReady(patience)
	had := make([]string, len(names))
	for i, name := range names {
		had[i] = strings.Join(s.interfaces(name), ", ")
	}

	u := s.user()
	files := filepath.Join(u.dir, "multus-new")
	repository, err := filepath.Abs(root)
	s.Must(err)
	repository, err = filepath.Rel(files, repository)
	s.Must(err)
	said := u.does("multusctl migrate --kubeconfig $KUBECONFIG --image localhost/multus-cni --write " + files + " --repository " + repository)
	u.dir = files
	steps := commands(said)
	s.Same("steps", 5, len(steps))
	for n, step := range steps {
		now := fmt.Sprintf("new-%d", n)
		for _, command := range step {
			t.Logf("$ %s\n%s", command, u.does(strings.ReplaceAll(command, "NODE", node1)))
		}
		s.whole(now, node1)
		for i, name := range names {
			s.Same("interfaces of "+name, had[i], strings.Join(s.interfaces(name), ", "))
		}
		names, had = append(names, now), append(had, strings.Join(s.interfaces(now), ", "))
		if n == 3 { // the thick one: it gives back what thin attached
			s.daemonPID(node1) // there is one
			s.remove(node1, names[:3]...)
			names, had = names[3:], had[3:]
		}
	}
	s.complete(2, names...)
	s.remove(node1, names...)
}

// user is a person at a shell, with the cluster's kubectl and our multusctl.
type user struct {
	*suite
	dir string
	env []string
}

func (s *suite) user() *user {
	s.Helper()
	dir := s.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	content, err := os.ReadFile(cluster.Kubeconfig())
	s.Must(err)
	s.Must(os.WriteFile(config, content, 0o600))
	s.kubectl("--kubeconfig", config, "config", "set-context", "--current", "--namespace="+s.ns)
	bin, err := filepath.Abs(root + "/bin")
	s.Must(err)
	s.Must(os.Symlink(cluster.Kubectl(), filepath.Join(dir, "kubectl")))
	return &user{s, dir, append(os.Environ(), "KUBECONFIG="+config, "PATH="+dir+":"+bin+":"+os.Getenv("PATH"))}
}

// does runs a line, which must succeed.
func (u *user) does(line string) string {
	u.Helper()
	cmd := exec.CommandContext(u.Context(), "bash", "-o", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// commands are the lines for kubectl in each step of "The way".
func commands(said string) (steps [][]string) {
	_, way, _ := strings.Cut(said, "\nThe way\n")
	for line := range strings.Lines(way) {
		switch {
		case len(line) > 3 && line[:2] == "  " && line[2] != ' ':
			steps = append(steps, nil)
		case strings.HasPrefix(line, "       kubectl "):
			steps[len(steps)-1] = append(steps[len(steps)-1], strings.TrimSpace(line))
		}
	}
	return steps
}

// A program that renames every configuration but its own, as Cilium does, and does not give
// up. What it does is told on the node, and does not stay.
func TestI4_RenamerIsOutlived(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.87.0.0/16")))
	t.Cleanup(func() { s.on(node1, "rm", "-f", standardConf+"/00-multus.conf.cilium_bak") })
	s.on(node1, "sh", "-c", "cd "+standardConf+" && for i in 1 2 3 4 5 6; do [ ! -e 00-multus.conf ] || mv 00-multus.conf 00-multus.conf.cilium_bak; sleep 1; done")
	begin := time.Now()
	s.configured(node1, "multus-cni-network")
	s.within(patience, func() error {
		_, err := tryOn(s.Context(), node1, "test", "-e", standardConf+"/00-multus.conf")
		return err
	})
	t.Logf("back %.1f s after the last time", time.Since(begin).Seconds())
	s.whole("p", node1)
	s.within(patience, func() error {
		told := s.kubectl("get", "events", "--field-selector", "involvedObject.kind=Node,involvedObject.name="+node1+",reason=MultusConfigDisturbed", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(told, "00-multus.conf.cilium_bak") {
			return fmt.Errorf("events of the node: %s", told)
		}
		return nil
	})
	s.remove(node1, "p")
}

// The daemon is told to end while it works: it ends well within the time that manifests
// give it, with nothing half-done.
func TestI4_DrainedInABurst(t *testing.T) {
	inABurst(t, 30, func(s *suite) {
		before := s.restarts(node1)
		s.on(node1, "kill", "-TERM", s.daemonPID(node1))
		s.within(patience, func() error { return atLeast(before+1, s.restarts(node1)) })
		ended := s.kubectl("-n", "kube-system", "get", "pod", "-l", "name=multus", "--field-selector", "spec.nodeName="+node1, "-o", "jsonpath={.items[0].status.containerStatuses[0].lastState.terminated.exitCode}")
		s.Same("the daemon's exit code", "0", ended)
	})
}

// Each daemon asks with a certificate of its own. It is renewed without a restart; one that
// is lost is put back, and pods start also while nobody approves requests.
func TestI4_CertificateRotation(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.89.0.0/16")))
	s.certified("testdata/certificates")
	s.whole("first", node1)
	before, restarts := s.certificate(node1), s.restarts(node1)

	const approver = "deployment/multus-cert-approver"
	s.kubectl("-n", "kube-system", "scale", approver, "--replicas=0")
	s.kubectl("-n", "kube-system", "wait", "--for=delete", "pod", "-l", "app=multus-cert-approver", "--timeout=60s")
	s.on(node1, "sh", "-c", "rm -f "+certificates+"/*.pem")
	s.whole("in-the-gap", node1)
	s.kubectl("-n", "kube-system", "scale", approver, "--replicas=1")
	s.within(patience, func() error {
		if now := s.certificate(node1); now == "" || now == before {
			return fmt.Errorf("no new certificate: %q", now)
		}
		return nil
	})
	s.whole("after", node1)
	s.Same("restarts of the daemon", restarts, s.restarts(node1))
	s.remove(node1, "first", "in-the-gap", "after")
}

// certified installs a kustomization with certificates, on nodes that have the kubelet's files
// where kubeadm has them. At the test's end all is as it was.
func (s *suite) certified(kustomization string) {
	s.Helper()
	s.everywhere("mkdir -p /var/lib/kubelet/pki && cp /etc/kubernetes/kubelet.kubeconfig /etc/kubernetes/kubelet.conf")
	s.Cleanup(func() {
		s.stopDaemons()
		s.kubectl("delete", "-k", kustomization, "--ignore-not-found", "--timeout=120s")
		s.everywhere("rm -rf /etc/kubernetes/kubelet.conf /run/multus/certificates")
		s.install("thick")
	})
	s.reconfigure(kustomization)
}

// The thin plugin of each node asks with a certificate of its own. Pods come and go also while no
// pod of Multus runs, and while it is replaced.
func TestI4_ThinCertificate(t *testing.T) {
	s := begin(t)
	const kustomization, pair = "testdata/thin-certificates", "/run/multus/certificates/multus-client-current.pem"
	s.apply(nad("lan", bridged("lan", "10.94.0.0/16")), nad("wire", pointToPoint("wire", "10.84.0.0/24")))
	s.stopDaemons()
	s.certified(kustomization)
	s.apply(pod("first", node1, "lan, wire"))
	s.ready("first")
	s.complete(3, "first")
	for _, node := range []string{node1, node2} {
		s.Same("credentials of the plugin on "+node, []string{"client-certificate:", pair, "client-key:", pair},
			strings.Fields(s.on(node, "grep", "-E", "token|client-", standardConf+"/multus.d/multus.kubeconfig")))
		s.Same("modes on "+node, "700 600", strings.Join(strings.Fields(s.on(node, "stat", "-L", "-c", "%a", filepath.Dir(pair), pair)), " "))
	}

	s.stopDaemons()
	s.whole("in-the-gap", node1)
	s.remove(node1, "first", "in-the-gap")
	s.kubectl("apply", "-k", kustomization)
	s.kubectl("-n", "kube-system", "rollout", "restart", daemonSet)
	for range 3 {
		s.whole("rolling", node1)
		s.remove(node1, "rolling")
	}
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
}

// certificates is the daemon's folder, as the node sees it.
const certificates = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/certificates"

// certificate is the checksum of the one that a node's daemon has; empty for none.
func (s *suite) certificate(node string) string {
	s.Helper()
	return s.on(node, "sh", "-c", "cat "+certificates+"/*current.pem 2>/dev/null | sha256sum | sed 's/^e3b0c442.*//'")
}

// The chart is installed over what kubectl made, upgraded and taken away with the real
// Helm. The networks stay.
func TestI4_HelmChart(t *testing.T) {
	s := begin(t)
	helm := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=" + root + "/test/deploy/go.mod", "helm", "--kubeconfig", cluster.Kubeconfig(), "-n", "kube-system"}, args...)...)
		if out, err := output(cmd, ""); err != nil {
			t.Fatalf("helm %s: %v: %s", args, err, out)
		}
	}
	s.apply(nad("lan", bridged("lan", "10.88.0.0/16")))
	t.Cleanup(func() { s.install("thick") })
	helm("install", "multus", root+"/deploy/chart", "--take-ownership", "--wait", "--timeout", "3m")
	s.multusConfigured()
	s.whole("installed", node1)
	helm("upgrade", "multus", root+"/deploy/chart", "--set", "config.logLevel=debug,config.multusMasterCNI="+labPrimary, "--wait", "--timeout", "3m")
	s.kubectl("-n", "kube-system", "rollout", "restart", daemonSet)
	s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	s.whole("upgraded", node1)
	s.remove(node1, "installed", "upgraded")
	helm("uninstall", "multus", "--wait")
	s.Same("networks", "lan", s.kubectl("-n", s.ns, "get", "network-attachment-definitions", "-o", "jsonpath={.items[*].metadata.name}"))
}

// The API server takes every kustomization of deploy/, each field of it, in a dry run. Of
// the kinds of others it only knows the names: test/deploy compares their fields.
func TestI4_APIServerTakesTheManifests(t *testing.T) {
	s := begin(t)
	const kinds = "testdata/foreign.yaml"
	t.Cleanup(func() { s.kubectl("delete", "-f", kinds, "--ignore-not-found") })
	s.kubectl("create", "-f", kinds)
	s.kubectl("wait", "--for=condition=Established", "-f", kinds, "--timeout=60s")
	var folders []string
	s.Must(filepath.WalkDir(root+"/deploy", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "kustomization.yaml" {
			folders = append(folders, filepath.Dir(path))
		}
		return err
	}))
	if len(folders) < 15 {
		t.Errorf("only %v", folders)
	}
	for _, folder := range append(folders, "testdata/components", "testdata/thin-certificates") {
		text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		s.Must(err)
		if strings.Contains(string(text), "kind: Component") {
			continue // a part of others, and of those in testdata
		}
		s.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", folder)
	}
}
