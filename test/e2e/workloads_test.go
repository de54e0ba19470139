//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/netspec"
)

// template is that of a controller's pods.
func template(app, node, networks string) corev1.PodTemplateSpec {
	p := pod(app, node, networks)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// A Deployment is scaled up and down, twice. Between, every address is back.
func TestI3_DeploymentUpAndDown(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.70.0.0/16")))
	before := s.leases(node1)
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: selector("web"), Template: template("web", node1, "lan")},
	}
	s.apply(d)
	for range 2 {
		s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=60")
		s.kubectl("-n", s.ns, "rollout", "status", "deployment/web", "--timeout=600s")
		if n := len(s.leases(node1)) - len(before); n < 120 {
			t.Errorf("60 pods with two interfaces hold %d addresses", n)
		}
		s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
		s.given(node1, before)
	}
}

// A StatefulSet's pod comes back under its name, with its networks.
func TestI3_StatefulSetPodRecreated(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", macvlan("lan")))
	s.apply(&appsv1.StatefulSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{ServiceName: "db", Selector: selector("db"), Template: template("db", node1, `[{"name":"lan","ips":["192.168.9.1/24"],"mac":"02:00:00:00:09:01"}]`)},
	})
	for range 3 {
		s.within(patience, func() error {
			_, err := tryKubectl(s.Context(), "", "-n", s.ns, "wait", "--for=condition=Ready", "pod/db-0", "--timeout=60s")
			return err
		})
		s.Same("interfaces", []string{"eth0 10.244.1.N/24", "net1 192.168.9.1/24"}, masked(s.interfaces("db-0")))
		uid := s.pod("db-0").UID
		s.kubectl("-n", s.ns, "delete", "pod", "db-0", "--timeout=60s")
		s.within(patience, func() error {
			if now, err := tryKubectl(s.Context(), "", "-n", s.ns, "get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}"); err != nil || now == string(uid) {
				return fmt.Errorf("pod db-0 is not there anew: %w", err)
			}
			return nil
		})
	}
}

// A pod on the host's network has nothing to do with Multus.
func TestI3_HostNetworkPod(t *testing.T) {
	s := begin(t)
	p := pod("p", node1, "no-such-network")
	p.Spec.HostNetwork = true
	s.apply(p)
	s.ready("p")
	if status := s.pod("p").Annotations[netspec.AnnotationStatus]; status != "" {
		t.Errorf("the network-status %s", status)
	}
}

// Many short pods, each with a further network.
func TestI3_JobStorm(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.71.0.0/16")))
	n, atOnce, failures := int32(60), int32(20), int32(0)
	tmpl := template("storm", node1, "lan")
	tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
	tmpl.Spec.Containers[0].Command = []string{"sh", "-c", "ip address show dev net1 | grep -q 'inet 10.71.'"}
	s.apply(&batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: "storm"},
		Spec: batchv1.JobSpec{Completions: &n, Parallelism: &atOnce, BackoffLimit: &failures, Template: tmpl},
	})
	s.kubectl("-n", s.ns, "wait", "--for=condition=Complete", "job/storm", "--timeout=600s")
}

// A static pod with networks, from a file on the node. Its sandbox is made when the node
// boots too: see the tests of a reboot.
func TestI3_StaticPod(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.72.0.0/24")))
	s.putStatic(node1, "static", "lan")
	s.ready("static-" + node1)
	s.complete(2, "static-"+node1)
	uid := s.pod("static-" + node1).UID
	s.removeStatic(node1, "static")
	s.within(patience, func() error {
		out, err := tryKubectl(s.Context(), "", "-n", s.ns, "get", "pods", "-o", "name")
		if err == nil && strings.Contains(out, "static") {
			err = fmt.Errorf("pod %s is still there", uid)
		}
		return err
	})
}

func staticFile(name string) string { return "/etc/kubernetes/manifests/" + name + ".json" }

func (s *suite) putStatic(node, name, networks string) {
	s.Helper()
	p := pod(name, "", networks)
	p.Namespace = s.ns
	s.on(node, "sh", "-c", "cat > "+staticFile(name)+" <<'EOF'\n"+text(p)+"\nEOF")
	s.Cleanup(func() { s.removeStatic(node, name) })
	s.within(time.Minute, func() error {
		_, err := tryKubectl(s.Context(), "", "-n", s.ns, "get", "pod", name+"-"+node)
		return err
	})
}

func (s *suite) removeStatic(node, name string) {
	s.Helper()
	s.on(node, "rm", "-f", staticFile(name))
}
