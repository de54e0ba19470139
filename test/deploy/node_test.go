package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func ptr[T any](v T) *T { return &v }

// confined is what every container is allowed but for the daemon of hotplug.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		Privileged: ptr(false), AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// TestR8DeployPrivileges: none, but in the overlay that is there for them.
func TestR8DeployPrivileges(t *testing.T) {
	for _, name := range installations {
		r := installation(t, name)
		same(t, name+"'s pod", &corev1.PodSecurityContext{
			RunAsUser: ptr(int64(0)), SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, r.pod().SecurityContext)
		same(t, name+"'s namespaces of the host (network, processes, IPC)", []bool{true, name == "hotplug", false}, []bool{r.pod().HostNetwork, r.pod().HostPID, r.pod().HostIPC})
		for _, c := range r.containers() {
			want := confined()
			if name == "hotplug" && c.Name == "kube-multus" {
				want = &corev1.SecurityContext{Privileged: ptr(true), ReadOnlyRootFilesystem: ptr(true)}
			}
			same(t, name+"'s container "+c.Name, want, c.SecurityContext)
		}
	}
}

// TestR8DeployMounts is all of the node that each container sees.
func TestR8DeployMounts(t *testing.T) {
	thick := []string{
		"install-multus-binary: /opt/cni/bin at /host/opt/cni/bin",
		"kube-multus: /etc/cni/net.d at /host/etc/cni/net.d",
		"kube-multus: /run/multus at /host/run/multus",
		"kube-multus: /var/lib/cni/multus at /var/lib/cni/multus, read only",
		"kube-multus: /run/netns at /host/var/run/netns, HostToContainer, read only",
		"kube-multus: /etc/cni/multus/net.d at /etc/cni/multus/net.d, read only",
		"kube-multus: /var/lib/kubelet/pod-resources at /var/lib/kubelet/pod-resources, read only",
		"kube-multus: /var/lib/kubelet/device-plugins at /var/lib/kubelet/device-plugins, read only",
		"kube-multus: multus-daemon-config at /etc/cni/net.d/multus.d, read only",
	}
	for name, want := range map[string][]string{
		"thick": thick,
		"hotplug": {
			thick[0], "kube-multus: / at /hostroot, HostToContainer", "kube-multus: /var/lib/cni/multus at /var/lib/cni/multus",
			thick[1], thick[2], thick[4], thick[5], thick[6], thick[7], thick[8],
		},
		"thin": {
			thick[0],
			"kube-multus: /etc/cni/net.d at /host/etc/cni/net.d",
			"kube-multus: /etc/cni/multus/net.d at /host/etc/cni/multus/net.d, read only",
		},
	} {
		same(t, name, want, mounts(installation(t, name)))
	}
}

func mounts(r *rendered) (list []string) {
	sources := map[string]string{}
	for _, v := range r.pod().Volumes {
		switch {
		case v.HostPath != nil:
			sources[v.Name] = v.HostPath.Path
		case v.ConfigMap != nil:
			sources[v.Name] = v.ConfigMap.Name
		}
	}
	for _, c := range r.containers() {
		for _, m := range c.VolumeMounts {
			text := fmt.Sprintf("%s: %s at %s", c.Name, sources[m.Name], m.MountPath)
			if m.MountPropagation != nil {
				text += ", " + string(*m.MountPropagation)
			}
			if m.ReadOnly {
				text += ", read only"
			}
			list = append(list, text)
		}
	}
	return list
}

// TestR8DeployMountsHaveReasons: each folder of the node has a comment that says why the
// pod has it, and a line in the installation's guide.
func TestR8DeployMountsHaveReasons(t *testing.T) {
	guide, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range installations {
		text, err := os.ReadFile(filepath.Join(deployDir, name, "daemonset.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var source struct {
			Spec struct {
				Template struct{ Spec struct{ Volumes []yaml.Node } }
			}
		}
		if err := yaml.Unmarshal(text, &source); err != nil {
			t.Fatal(err)
		}
		for _, node := range source.Spec.Template.Spec.Volumes {
			var v struct {
				Name     string
				HostPath struct{ Path string } `yaml:"hostPath"`
			}
			if err := node.Decode(&v); err != nil {
				t.Fatal(err)
			}
			if v.HostPath.Path == "" {
				continue
			}
			seen++
			if node.HeadComment == "" {
				t.Errorf("%s: no comment says what the volume %s is for", name, v.Name)
			}
			if !strings.Contains(string(guide), "| `"+v.HostPath.Path+"` |") {
				t.Errorf("docs/install.md does not say what %s is for", v.HostPath.Path)
			}
		}
	}
	same(t, "folders seen", 8+1+3, seen)
}

// TestI3_DeployIsGuaranteed: the kubelet ends such pods last. The class needs requests
// that equal the limits, of both resources, in every container.
func TestI3_DeployIsGuaranteed(t *testing.T) {
	amount := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, name := range installations {
		for _, c := range installation(t, name).containers() {
			want := amount("50Mi") // as in Multus v4
			if name == "hotplug" && c.Name == "kube-multus" {
				want = amount("200Mi")
			}
			same(t, name+"'s container "+c.Name, corev1.ResourceRequirements{Requests: want, Limits: want}, c.Resources)
		}
	}
}

func TestI3_DeployScheduling(t *testing.T) {
	for name, grace := range map[string]int64{"thick": 15, "hotplug": 15, "thin": 10} {
		r := installation(t, name)
		same(t, name+"'s strategy", appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr(intstr.FromString("10%"))},
		}, r.set.Spec.UpdateStrategy)
		same(t, name+"'s seconds until it counts", map[string]int32{"thin": 5}[name], r.set.Spec.MinReadySeconds) // the others have a probe
		same(t, name+"'s priority", "system-node-critical", r.pod().PriorityClassName)
		same(t, name+"'s nodes", map[string]string{"kubernetes.io/os": "linux"}, r.pod().NodeSelector)
		same(t, name+"'s tolerations", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, r.pod().Tolerations)
		same(t, name+"'s grace", &grace, r.pod().TerminationGracePeriodSeconds)
	}
}

// TestI3_DeployImages: one exact version everywhere.
func TestI3_DeployImages(t *testing.T) {
	version := regexp.MustCompile(`^localhost/multus-cni:(v\d+\.\d+\.\d+)(-thick)?$`)
	found := map[string]bool{}
	for name, suffix := range map[string]string{"thick": "-thick", "hotplug": "-thick", "thin": ""} {
		for _, c := range installation(t, name).containers() {
			m := version.FindStringSubmatch(c.Image)
			if m == nil || m[2] != suffix {
				t.Errorf("%s's container %s has the image %s", name, c.Name, c.Image)
				continue
			}
			found[m[1]] = true
		}
	}
	same(t, "versions", 1, len(found))
}

// TestI3_DeployFoldersFit: the daemon, its probes and its configuration speak of the same
// folders, which are the node's.
func TestI3_DeployFoldersFit(t *testing.T) {
	for _, name := range []string{"thick", "hotplug"} {
		r := installation(t, name)
		var config struct {
			SocketDir, CNIConfigDir, MultusAutoconfigDir, ChrootDir string
			Hotplug                                                 bool
		}
		if err := json.Unmarshal([]byte(r.config.Data["daemon-config.json"]), &config); err != nil {
			t.Fatal(err)
		}
		same(t, name+"'s socket", "/host/run/multus/", config.SocketDir)
		same(t, name+"'s runtime folder", []string{"/host/etc/cni/net.d", "/host/etc/cni/net.d"}, []string{config.CNIConfigDir, config.MultusAutoconfigDir})
		same(t, name+"'s host", map[string]string{"thick": "", "hotplug": "/hostroot"}[name], config.ChrootDir)
		same(t, name+" follows running pods", name == "hotplug", config.Hotplug)
		daemon := r.pod().Containers[0]
		program := "/usr/src/multus-cni/bin/multus-daemon"
		same(t, name+"'s commands", [][]string{{program}, {program, "readycheck", "/host/run/multus"}, {program, "healthcheck", "/host/run/multus"}},
			[][]string{daemon.Command, daemon.ReadinessProbe.Exec.Command, daemon.LivenessProbe.Exec.Command})
		same(t, name+"'s environment", []corev1.EnvVar{{
			Name: "MULTUS_NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
		}}, daemon.Env)
	}
}
