//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/multus-thick/multus/internal/netspec"
)

// program runs a program of the suite on a node, which has said "registered" when this
// returns, until the end of the test. The test's pods go before it, for it may have to
// clean up after them.
func (s *suite) program(node, path string, args ...string) {
	s.Helper()
	there := "/usr/local/bin/" + filepath.Base(path)
	s.on(node, "mkdir", "-p", filepath.Dir(there))
	s.copyTo(node, path, there)
	cmd, err := s.machine(node).Command(context.WithoutCancel(s.Context()), there, args...) // it ends with its stdin
	s.Must(err)
	stdin, err := cmd.StdinPipe()
	s.Must(err)
	stdout, err := cmd.StdoutPipe()
	s.Must(err)
	var said strings.Builder
	cmd.Stderr = &said
	s.Must(cmd.Start())
	s.Cleanup(func() {
		s.Must(stdin.Close())
		if err := cmd.Wait(); err != nil {
			s.Errorf("%s: %v: %s", filepath.Base(path), err, said.String())
		}
	})
	s.Cleanup(func() { s.kubectl("-n", s.ns, "delete", "pods", "--all", "--timeout=120s") })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "registered" {
		s.Fatalf("%s said %q (%v): %s", filepath.Base(path), line, err, said.String())
	}
}

// using is a pod whose containers have some of a resource each.
func using(name, node, networks string, resourceName corev1.ResourceName, byContainer map[string]int64) *corev1.Pod {
	p := pod(name, node, networks)
	main := p.Spec.Containers[0]
	p.Spec.Containers = nil
	for container, n := range byContainer {
		c := *main.DeepCopy()
		c.Name = container
		c.Resources.Limits = corev1.ResourceList{resourceName: *resource.NewQuantity(n, resource.DecimalSI)}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// ofResource is a network that takes a device of a resource. Its plugin has no use for one.
func ofResource(name, resource, subnet string) object {
	o := nad(name, bridged(name, subnet))
	o["metadata"] = object{"name": name, "annotations": object{netspec.AnnotationResourceName: resource}}
	return o
}

// devicesOf are the devices of a pod's attachments, in order, as a node's ledger has them
// in the form of Multus v4.
func (s *suite) devicesOf(node, pod string) []string {
	s.Helper()
	ids := s.sandboxes(node, pod)
	if len(ids) != 1 {
		s.Fatalf("pod %s has the sandboxes %v", pod, ids)
	}
	var record []struct {
		DeviceID string `json:"deviceID"`
	}
	s.Must(json.Unmarshal([]byte(s.on(node, "cat", "/var/lib/cni/multus/"+ids[0])), &record))
	var all []string
	for _, a := range record[1:] {
		all = append(all, a.DeviceID)
	}
	return all
}

// told are the devices that a pod's network-status tells of.
func (s *suite) told(pod string) []string {
	s.Helper()
	var all []string
	for _, entry := range s.status(pod)[1:] {
		var info struct {
			PCI struct {
				Address string `json:"pci-address"`
			} `json:"pci"`
		}
		s.Must(json.Unmarshal(entry.DeviceInfo, &info))
		all = append(all, info.PCI.Address)
	}
	return all
}

const deviceInfoFiles = "ls /var/run/k8s.cni.cncf.io/devinfo/cni 2>/dev/null | wc -l"

// Two pods with two devices of one resource each: each attachment has one of its own, in
// the order of the containers, the status tells of it, and nothing stays. A pod without is
// told what the kubelet says.
func TestI5_Devices(t *testing.T) {
	s := begin(t)
	const nic = "suite.example/nic"
	s.program(node1, devicePlugin, nic, "nic-c", "nic-a", "nic-d", "nic-b")
	s.within(patience, func() error {
		if n := s.kubectl("get", "node", node1, "-o", `jsonpath={.status.allocatable.suite\.example/nic}`); n != "4" {
			return fmt.Errorf("the node has %q devices", n)
		}
		return nil
	})
	s.apply(ofResource("dev", nic, "10.95.0.0/24"),
		using("one", node1, "dev,dev", nic, map[string]int64{"b": 1, "a": 1}),
		using("two", node1, "dev,dev", nic, map[string]int64{"main": 2}),
		pod("none", node1, "dev"))
	s.ready("one", "two")
	has := func(pod string, containers ...string) []string {
		var all []string
		for _, c := range containers {
			ids := strings.Fields(s.kubectl("-n", s.ns, "exec", pod, "-c", c, "--", "sh", "-c", "echo $SUITE_DEVICES"))
			slices.Sort(ids)
			all = append(all, ids...)
		}
		return all
	}
	one, two := has("one", "a", "b"), has("two", "main")
	for pod, want := range map[string][]string{"one": one, "two": two} {
		s.Same("the devices of pod "+pod, want, s.devicesOf(node1, pod))
		s.within(patience, func() error {
			if len(s.status(pod)) != 3 {
				return fmt.Errorf("pod %s has no status yet", pod)
			}
			return nil
		})
		s.Same("the device-info of pod "+pod, want, s.told(pod))
	}
	all := slices.Concat(one, two)
	slices.Sort(all)
	s.Same("all devices", []string{"nic-a", "nic-b", "nic-c", "nic-d"}, all)
	s.Same("device-info files", "4", s.on(node1, "sh", "-c", deviceInfoFiles))

	line := fmt.Sprintf(`pod %s/none: network selection element 1, network %[1]s/dev, annotation "k8s.v1.cni.cncf.io/resourceName": `+
		`found 0 devices of the resource "suite.example/nic" allocated to the pod, and this attachment takes number 1 `+
		`(the kubelet (pod-resources Get) has allocated no device to pod %[1]s/none; it has no resource claim)`, s.ns)
	s.within(patience, func() error {
		told := s.kubectl("-n", s.ns, "get", "events", "--field-selector", "involvedObject.name=none,reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(told, line) {
			return fmt.Errorf("the kubelet's event does not say %s:\n%s", line, told)
		}
		return nil
	})

	s.remove(node1, "one", "two", "none")
	s.Same("device-info files that are left", "0", s.on(node1, "sh", "-c", deviceInfoFiles))
}

const (
	driverName = "nic.suite.example"
	vf         = "suite.example/vf"
	extended   = "ext.suite.example/nic"
)

// claiming is a pod with a claim, made from the template or named.
func claiming(name, networks string, claim corev1.PodResourceClaim) *corev1.Pod {
	p := pod(name, "", networks)
	claim.Name = "nics"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{claim}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "nics"}}
	return p
}

// putDriver starts the DRA driver on node1, and publishes its devices vf0 to vf4: the
// kubelet removes what was published before the driver came.
func (s *suite) putDriver() {
	s.Helper()
	var devices []any
	args := []string{driverName}
	for i := range 5 {
		name := fmt.Sprintf("vf%d", i)
		args = append(args, name)
		devices = append(devices, object{"name": name, "attributes": object{
			"k8s.cni.cncf.io/deviceID":     object{"string": fmt.Sprintf("0000:81:00.%d", i)},
			"k8s.cni.cncf.io/resourceName": object{"string": vf},
		}})
	}
	s.program(node1, draDriver, args...)
	api := func(kind, name string, spec object) object {
		return object{"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": object{"name": name}, "spec": spec}
	}
	s.Cleanup(func() {
		s.kubectl("delete", "deviceclass/"+driverName, "resourceslice/node1-"+driverName, "--ignore-not-found", "--timeout=60s")
	})
	request := func(n int) object {
		return object{"devices": object{"requests": []any{object{"name": "nic", "exactly": object{"deviceClassName": driverName, "count": n}}}}}
	}
	s.apply(
		api("DeviceClass", driverName, object{"selectors": []any{object{"cel": object{"expression": `device.driver == "` + driverName + `"`}}}, "extendedResourceName": extended}),
		api("ResourceSlice", "node1-"+driverName, object{"driver": driverName, "nodeName": node1, "pool": object{"name": node1, "generation": 1, "resourceSliceCount": 1}, "devices": devices}),
		api("ResourceClaimTemplate", "two", object{"spec": request(2)}),
		api("ResourceClaim", "named", request(1)),
	)
}

// Devices of claims: from a template, by the name of a claim as v4.3 reads it, and for an
// extended resource. None is used twice, and the claim tells of the interfaces.
func TestI5_DRA(t *testing.T) {
	s := begin(t)
	t.Cleanup(func() { s.reconfigure(root + "/deploy/thick") })
	s.reconfigure("testdata/claim-status")
	s.putDriver()
	template, named := "two", "named"
	ext := using("ext", "", "vf", extended, map[string]int64{"main": 1})
	s.apply(ofResource("vf", vf, "10.95.1.0/24"), ofResource("named", "named", "10.95.2.0/24"),
		claiming("made", "vf,vf", corev1.PodResourceClaim{ResourceClaimTemplateName: &template}),
		claiming("by-name", "named", corev1.PodResourceClaim{ResourceClaimName: &named}),
		ext)
	s.ready("made", "by-name", "ext")

	made, byName, extDevices := s.devicesOf(node1, "made"), s.devicesOf(node1, "by-name"), s.devicesOf(node1, "ext")
	s.Same("the claim's devices by attribute", s.allocated(s.claimOf("made"), "0000:81:00."), made)
	s.Same("the claim's devices by its name", s.allocated("named", "vf"), byName)
	claim := s.pod("ext").Status.ExtendedResourceClaimStatus
	if claim == nil {
		t.Fatal("the extended resource has no claim")
	}
	s.Same("the extended resource's device", s.allocated(claim.ResourceClaimName, "0000:81:00."), extDevices)

	s.within(patience, func() error {
		var got []string
		for _, d := range s.claim(s.claimOf("made")).Status.Devices {
			if d.NetworkData != nil && len(d.NetworkData.IPs) == 1 && d.NetworkData.HardwareAddress != "" {
				got = append(got, d.NetworkData.InterfaceName)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"net1", "net2"}) {
			return fmt.Errorf("the claim's status tells of the interfaces %v", got)
		}
		return nil
	})
	s.remove(node1, "made", "by-name", "ext")
}

// claimOf is the claim that was made for a pod.
func (s *suite) claimOf(pod string) string {
	s.Helper()
	statuses := s.pod(pod).Status.ResourceClaimStatuses
	if len(statuses) != 1 || statuses[0].ResourceClaimName == nil {
		s.Fatalf("pod %s has the claims %v", pod, statuses)
	}
	return *statuses[0].ResourceClaimName
}

func (s *suite) claim(name string) resourcev1.ResourceClaim {
	s.Helper()
	var claim resourcev1.ResourceClaim
	s.Must(json.Unmarshal([]byte(s.kubectl("-n", s.ns, "get", "resourceclaim", name, "-o", "json")), &claim))
	return claim
}

// allocated are the devices of a claim, sorted: vf3 with the prefix in place of its letters.
func (s *suite) allocated(claim, prefix string) []string {
	s.Helper()
	allocation := s.claim(claim).Status.Allocation
	if allocation == nil {
		s.Fatalf("claim %s is not allocated", claim)
	}
	var all []string
	for _, r := range allocation.Devices.Results {
		all = append(all, prefix+strings.TrimPrefix(r.Device, "vf"))
	}
	slices.Sort(all)
	return all
}
