//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/test/cluster/lab"
)

const aloneConf = "/etc/cni/net.d/00-a-alone.conflist"

// alone lets the runtime of a node pass Multus over, as after a reboot that has lost its
// configuration, until throughMultusAgain or the end of the test.
func (s *suite) alone(node string) {
	s.Helper()
	s.Cleanup(func() { s.throughMultusAgain(node) })
	s.on(node, "sh", "-c", "cp /etc/cni/net.d/10-bridge.conflist "+aloneConf+".tmp && mv "+aloneConf+".tmp "+aloneConf)
	s.configured(node, "cluster")
}

func (s *suite) throughMultusAgain(node string) {
	s.Helper()
	s.on(node, "rm", "-f", aloneConf)
	s.configured(node, "multus-cni-network")
}

// age makes a node's records an hour older, and has the daemon look at once: it does so
// after its start, and every ten minutes.
func (s *suite) age(node string) {
	s.Helper()
	nodeRoot, err := s.machine(node).Root()
	s.Must(err)
	records := ledger.New(filepath.Join(nodeRoot, "var/lib/cni/multus"), "")
	for rec, err := range records.Each() {
		if err != nil || rec.Origin != attach.Ours {
			continue
		}
		rec.Created = rec.Created.Add(-time.Hour)
		if err := records.Save(rec, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Fatal(err)
		}
	}
	s.on(node, "kill", "-KILL", s.daemonPID(node))
}

// left waits until a node has no more records and addresses than before.
func (s *suite) left(node string, records, leases []string) {
	s.Helper()
	s.given(node, leases)
	s.within(patience, func() error {
		more := slices.DeleteFunc(s.records(node), func(id string) bool { return slices.Contains(records, id) })
		if len(more) > 0 {
			return fmt.Errorf("%s: records of nobody: %v", node, more)
		}
		return nil
	})
}

// strays are the pods of the namespace that the daemon has found to be some.
func (s *suite) strays() []string {
	s.Helper()
	pods := strings.Fields(s.kubectl("-n", s.ns, "get", "events", "--field-selector", "reason=NetworksMissing", "-o", `jsonpath={range .items[*]}{.involvedObject.name}{"\n"}{end}`))
	slices.Sort(pods)
	return slices.Compact(pods)
}

// The daemon, the kubelet and the runtime are killed while pods are deleted, and the
// deletions reach another plugin: what the further networks hold is given back all the same.
func TestI5_OrphansAfterEverythingKilled(t *testing.T) {
	s := begin(t)
	s.Cleanup(func() { s.reconfigure(root + "/deploy/thick") })
	s.reconfigure("testdata/pinned")
	s.apply(nad("lan", bridged("lan", "10.90.0.0/16")), pod("kept", node1, "lan"))
	s.ready("kept")
	records, leases := s.records(node1), s.leases(node1)
	names := s.burst("p", 20, node1, "lan")
	s.allReady(patience)

	s.alone(node1)
	s.kubectl(append([]string{"-n", s.ns, "delete", "pod", "--force", "--grace-period=0", "--wait=false"}, names...)...)
	s.on(node1, "kill", "-KILL", s.daemonPID(node1))
	s.Must(s.machine(node1).KillProgram(t.Context(), "containerd"))
	s.Must(s.machine(node1).KillProgram(t.Context(), "kubelet"))
	s.within(patience, func() error {
		if out, err := tryOn(s.Context(), node1, "crictl", "pods", "--namespace", s.ns, "--state", "ready", "-q"); err != nil || len(strings.Fields(out)) > 1 {
			return fmt.Errorf("sandboxes are left: %s (%w)", out, err)
		}
		return nil
	})
	if len(s.records(node1)) < len(records)+len(names) {
		t.Fatalf("the deletions reached Multus: %d records", len(s.records(node1)))
	}
	s.throughMultusAgain(node1)
	began := time.Now()
	s.age(node1)
	s.left(node1, records, leases)
	t.Logf("what %d pods had left was given back in %.1f s", len(names), time.Since(began).Seconds())
	s.complete(2, "kept")
}

// A node loses power, its /etc is that of its first start, and its daemon comes late: every
// pod is up with the primary network alone. Each is found, and what its status claims is
// put right; the addresses of before come back when the pods are gone.
func TestI5_StraysAfterVolatileEtc(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.91.0.0/16")))
	records, leases := s.records(node2), s.leases(node2)
	names := s.burst("p", 20, node2, "lan")
	host := pod("host", node2, "lan")
	host.Spec.HostNetwork = true
	s.apply(host, pod("plain", node2, ""))
	s.allReady(patience)
	slices.Sort(names)

	const elsewhere = `{"spec":{"template":{"spec":{"nodeSelector":{"multus-e2e":%s}}}}}`
	place := func(value string) {
		s.kubectl("-n", "kube-system", "patch", daemonSet, "--type=merge", "-p", fmt.Sprintf(elsewhere, value))
		s.kubectl("-n", "kube-system", "rollout", "status", daemonSet, "--timeout=180s")
	}
	s.kubectl("label", "node", node1, "multus-e2e=here")
	s.Cleanup(func() {
		place("null")
		s.kubectl("label", "node", node1, "multus-e2e-")
		s.multusConfigured()
	})
	place(`"here"`)
	s.Must(s.machine(node2).Reboot(t.Context(), lab.BootOptions{VolatileEtc: true}))
	for _, name := range append(names, "host", "plain") {
		s.within(patience, func() error { return restarted(s.pod(name)) })
	}
	s.Same("a pod without Multus", 1, len(s.interfaces(names[0])))
	s.Same("its status claims more", 2, len(s.status(names[0])))
	began := time.Now()
	place("null")
	s.within(patience, func() error {
		if found := s.strays(); !slices.Equal(found, names) {
			return fmt.Errorf("found: %v", found)
		}
		return nil
	})
	t.Logf("%d strays were found in %.1f s from the daemon's return", len(names), time.Since(began).Seconds())
	for _, name := range names {
		s.within(patience, func() error { return truthful(s.pod(name)) })
	}
	s.remove(node2, append(names, "host", "plain")...)
	s.age(node2)
	s.left(node2, records, leases)
}

// truthful tells whether a stray's status says what it has.
func truthful(p corev1.Pod) error {
	entries, err := netspec.ParseStatus(p.Annotations[netspec.AnnotationStatus])
	if err != nil || len(entries) != 1 || !slices.Equal(entries[0].IPs, []string{p.Status.PodIP}) {
		return fmt.Errorf("pod %s has the address %s and the status %v (%w)", p.Name, p.Status.PodIP, entries, err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "multus-cni.io/NetworksAttached" && c.Status == corev1.ConditionFalse {
			return nil
		}
	}
	return fmt.Errorf("pod %s has no condition that tells", p.Name)
}

// A stray gets its networks while it runs, and gives them back when it is deleted.
func TestI5_StraysAttachedLate(t *testing.T) {
	s := begin(t)
	s.Cleanup(func() { s.reconfigure(root + "/deploy/thick") })
	s.reconfigure("testdata/late")
	s.apply(nad("lan", bridged("lan", "10.92.0.0/16")))
	s.alone(node1)
	s.apply(pod("p", node1, "lan@lan0"), pod("q", node1, "lan"))
	s.ready("p", "q")
	s.within(patience, func() error {
		if got := append(s.names("p"), s.names("q")...); !slices.Equal(got, []string{"eth0", "lan0", "eth0", "net1"}) {
			return fmt.Errorf("interfaces %v", got)
		}
		return nil
	})
	s.complete(2, "p", "q")
	address := s.status("q")[1].IPs[0]
	s.exec("p", "ping -c 1 -w 10 "+address)
	s.event("p", "NetworksRestored")
	s.throughMultusAgain(node1)
	s.remove(node1, "p", "q") // begin's end sees that their addresses are back
}

// A stray of a controller is evicted, and comes back whole; one of nobody stays.
func TestI5_StraysEvicted(t *testing.T) {
	s := begin(t)
	s.Cleanup(func() { s.reconfigure(root + "/deploy/thick") })
	s.reconfigure("testdata/pinned")
	one := int32(1)
	s.apply(nad("lan", bridged("lan", "10.93.0.0/16")))
	s.alone(node1)
	s.apply(pod("bare", node1, "lan"), &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector("web"), Template: template("web", node1, "lan")},
	})
	s.allReady(patience)
	before := s.kubectl("-n", s.ns, "get", "pod", "-l", "app=web", "-o", "name")
	s.throughMultusAgain(node1)
	s.reconfigure("testdata/evict")
	s.within(patience, func() error {
		after := s.kubectl("-n", s.ns, "get", "pod", "-l", "app=web", "-o", "name")
		if len(strings.Fields(after)) != 1 || after == before {
			return fmt.Errorf("the Deployment has %s", after)
		}
		_, err := tryKubectl(s.Context(), "", "-n", s.ns, "wait", "--for=condition=Ready", after, "--timeout=5s")
		return err
	})
	s.complete(2, strings.TrimPrefix(s.kubectl("-n", s.ns, "get", "pod", "-l", "app=web", "-o", "name"), "pod/"))
	s.event("bare", "The pod is not evicted")
	s.Same("the bare pod", 1, len(s.interfaces("bare")))
	s.kubectl("-n", s.ns, "delete", "deployment", "web", "--timeout=120s")
	s.remove(node1, "bare")
}
