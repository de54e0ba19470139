package deploy

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// overlay is all that a distribution's overlay changes in deploy/thick.
type overlay struct {
	paths map[string]string // by volume
	keys  map[string]string // of daemon-config.json
	image string            // the registry
	nodes []string          // compute types of EKS that are left out
	scc   bool
}

const (
	ecr      = "111122223333.dkr.ecr.us-west-2.amazonaws.com/multus-cni"
	snap     = "/var/snap/microk8s/current"
	rancher  = "/var/lib/rancher/k3s"
	standard = "/etc/cni/net.d"
)

func overlays() map[string]overlay {
	eks := overlay{
		keys:  map[string]string{"hostCniConfigDir": standard, "multusMasterCNI": "10-aws.conflist"},
		image: ecr, nodes: []string{"fargate", "hybrid"},
	}
	govcloud, china := eks, eks
	govcloud.image = "111122223333.dkr.ecr.us-gov-west-1.amazonaws.com/multus-cni"
	china.image = "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn/multus-cni"
	return map[string]overlay{
		"kubeadm": {}, "eks": eks, "eks-govcloud": govcloud, "eks-china": china,
		"k3s": {
			paths: map[string]string{"cni": rancher + "/agent/etc/cni/net.d", "cnibin": rancher + "/data/cni"},
			keys:  map[string]string{"hostCniConfigDir": rancher + "/agent/etc/cni/net.d", "binDir": rancher + "/data/cni"},
		},
		"rke2": {keys: map[string]string{"multusMasterCNI": "10-canal.conflist"}},
		"microk8s": {
			paths: map[string]string{
				"cni": snap + "/args/cni-network", "cnibin": snap + "/opt/cni/bin",
				"pod-resources":  "/var/snap/microk8s/common/var/lib/kubelet/pod-resources",
				"device-plugins": "/var/snap/microk8s/common/var/lib/kubelet/device-plugins",
			},
			keys: map[string]string{"hostCniConfigDir": snap + "/args/cni-network", "binDir": snap + "/opt/cni/bin"},
		},
		"talos": {keys: map[string]string{"hostCniConfigDir": standard}},
		"openshift": {
			paths: map[string]string{"cni": "/etc/kubernetes/cni/net.d", "cnibin": "/var/lib/cni/bin"},
			keys:  map[string]string{"hostCniConfigDir": "/etc/kubernetes/cni/net.d", "binDir": "/var/lib/cni/bin", "multusMasterCNI": "10-ovn-kubernetes.conf"},
			scc:   true,
		},
		"gke": {
			paths: map[string]string{"cnibin": "/home/kubernetes/bin"},
			keys:  map[string]string{"hostCniConfigDir": standard, "binDir": "/home/kubernetes/bin"},
		},
		"cilium":  {keys: map[string]string{"multusMasterCNI": "05-cilium.conflist"}},
		"flannel": {keys: map[string]string{"multusMasterCNI": "10-flannel.conflist"}},
		"calico":  {keys: map[string]string{"multusMasterCNI": "10-calico.conflist"}},
	}
}

// change makes of deploy/thick what the overlay shall be.
func (o overlay) change(t *testing.T, r *rendered) {
	t.Helper()
	for i := range r.pod().Volumes {
		v := &r.pod().Volumes[i]
		if path, ok := o.paths[v.Name]; ok {
			v.HostPath.Path = path
		}
	}
	for _, list := range [][]corev1.Container{r.pod().InitContainers, r.pod().Containers} {
		for i := range list {
			if o.image != "" {
				list[i].Image = strings.Replace(list[i].Image, "localhost/multus-cni", o.image, 1)
			}
		}
	}
	if o.nodes != nil {
		r.pod().Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn, Values: o.nodes},
			}}},
		}}}
	}
	if o.scc {
		r.scc = constraints(false)
		r.names = append(r.names, "SecurityContextConstraints /multus")
	}
	config := r.keys(t)
	for key, value := range o.keys {
		config[key] = value
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	r.config.Data = map[string]string{"daemon-config.json": string(text)}
}

// keys are those of daemon-config.json.
func (r *rendered) keys(t *testing.T) map[string]any {
	t.Helper()
	keys := map[string]any{}
	if r.config == nil {
		return keys
	}
	if err := json.Unmarshal([]byte(r.config.Data["daemon-config.json"]), &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

// kustomizations are all folders of deploy/ that kubectl apply -k takes, for whoever
// wants to look at each of them.
func kustomizations(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(deployDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var object struct{ Kind string }
		if err := yaml.Unmarshal(text, &object); err != nil {
			return err
		}
		if object.Kind == "Kustomization" { // a Component needs something to change
			dir, err := filepath.Rel(deployDir, filepath.Dir(path))
			dirs = append(dirs, dir)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestI4_DeployEveryFolderRenders: each makes objects that their kinds know, to the last field.
func TestI4_DeployEveryFolderRenders(t *testing.T) {
	want := []string{"crd", "hotplug", "monitoring", "thick", "thin"}
	for name := range overlays() {
		want = append(want, "overlays/"+name)
	}
	slices.Sort(want)
	got := kustomizations(t)
	same(t, "folders", want, got)
	for _, dir := range got {
		if len(installation(t, dir).names) == 0 {
			t.Errorf("%s makes nothing", dir)
		}
	}
}

// TestI4_DeployOverlays: an overlay is deploy/thick but for what its distribution needs.
func TestI4_DeployOverlays(t *testing.T) {
	for name, o := range overlays() {
		want, got := installation(t, "thick"), installation(t, "overlays/"+name)
		o.change(t, want)
		sameInstallation(t, name, want, got)
	}
}

// sameInstallation compares all objects, and daemon-config.json by its keys. The order of
// objects, volumes and mounts has no meaning, and patches change it.
func sameInstallation(t *testing.T, name string, want, got *rendered) {
	t.Helper()
	for _, r := range []*rendered{want, got} {
		slices.Sort(r.names)
		slices.SortFunc(r.pod().Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range r.containers() {
			slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
		}
	}
	same(t, name+"'s objects", want.names, got.names)
	same(t, name+"'s DaemonSet", want.set, got.set)
	same(t, name+"'s keys", want.keys(t), got.keys(t))
	same(t, name+"'s account", want.account, got.account)
	same(t, name+"'s role", want.role, got.role)
	same(t, name+"'s binding", want.binding, got.binding)
	same(t, name+"'s SecurityContextConstraints", want.scc, got.scc)
	same(t, name+"'s other objects", want.others, got.others)
	if want.config != nil && got.config != nil {
		same(t, name+"'s ConfigMap", want.config.ObjectMeta, got.config.ObjectMeta)
	}
}

// TestI4_DeployOverlaysHaveReasons: what differs has a comment beside it that says why, and
// its place in the table of the guide.
func TestI4_DeployOverlaysHaveReasons(t *testing.T) {
	guide := read(t, "../../docs/install.md")
	for name, o := range overlays() {
		if base, _, found := strings.Cut(name, "-"); found { // a registry's name, and nothing else
			name, o = base, overlays()[base]
		}
		_, row, found := strings.Cut(guide, "\n| `overlays/"+name+"`")
		if !found {
			t.Errorf("docs/install.md has no row for overlays/%s", name)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		reasons := comments(read(t, filepath.Join(deployDir, "overlays", name, "kustomization.yaml")))
		for key, value := range o.keys {
			if !strings.Contains(reasons, key) {
				t.Errorf("%s: no comment says why there is %s", name, key)
			}
			if !strings.Contains(row, "`"+value+"`") {
				t.Errorf("%s: the guide's row has no %s", name, value)
			}
		}
		for _, path := range slices.Sorted(maps.Values(o.paths)) {
			path = strings.TrimSuffix(strings.TrimSuffix(path, "/pod-resources"), "/device-plugins")
			if !strings.Contains(row, "`"+path+"`") {
				t.Errorf("%s: the guide's row has no %s", name, path)
			}
		}
	}
}

func comments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if _, comment, found := strings.Cut(line, "#"); found {
			b.WriteString(comment)
		}
	}
	return b.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withPort is deploy/thick with the component that names the port of its metrics.
func withPort(t *testing.T) *rendered {
	t.Helper()
	return composed(t, []string{"thick"}, "monitoring/port")
}

// composed is what a user's kustomization makes of folders and components.
func composed(t *testing.T, resources []string, components ...string) *rendered {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs(deployDir)
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(dir, deploy)
	if err != nil {
		t.Fatal(err)
	}
	file := map[string][]string{}
	for _, name := range resources {
		file["resources"] = append(file["resources"], filepath.Join(base, name))
	}
	for _, name := range components {
		file["components"] = append(file["components"], filepath.Join(base, name))
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return renderIn(t, filesys.MakeFsOnDisk(), dir)
}

// TestI4_DeployMonitoring: the monitor finds the daemon's pods and the port of their
// metrics, and gives the labels that rules and dashboard go by.
func TestI4_DeployMonitoring(t *testing.T) {
	r, thick := installation(t, "monitoring"), withPort(t)
	same(t, "objects", []string{"ConfigMap kube-system/multus-dashboard", "PodMonitor kube-system/multus", "PrometheusRule kube-system/multus"}, r.names)
	same(t, "ports", []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9091}}, thick.pod().Containers[0].Ports)
	spec := r.monitor.Spec
	same(t, "pods", thick.set.Spec.Selector, &spec.Selector)
	same(t, "the job", "multus", thick.set.Spec.Template.Labels[spec.JobLabel])
	same(t, "endpoints", []monitoringv1.PodMetricsEndpoint{{
		Port: ptr("metrics"),
		RelabelConfigs: []monitoringv1.RelabelConfig{{
			SourceLabels: []monitoringv1.LabelName{"__meta_kubernetes_pod_node_name"}, TargetLabel: "node",
		}},
	}}, spec.PodMetricsEndpoints)
	same(t, "the dashboard", map[string]string{"multus.json": read(t, filepath.Join(deployDir, "monitoring", "multus.json"))}, r.dashboard.Data)
}
