package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits of our manifests.
const (
	thickMemory   = "50Mi"
	hotplugMemory = "200Mi"
)

// covered are the labels of nodes that our manifests and images see to.
var covered = []string{"kubernetes.io/os", "beta.kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/arch"}

// pod carries over what the DaemonSet says of its pod and ours does not.
func (t *target) pod() {
	t.patch = object{}
	if t.ds == nil {
		return
	}
	pod := t.ds.Spec.Template.Spec
	selector := object{}
	for label, value := range pod.NodeSelector {
		if !slices.Contains(covered, label) {
			selector[label] = value
		}
	}
	if len(selector) > 0 {
		t.patch["nodeSelector"] = selector
	}
	if t.ownAffinity(pod.Affinity) {
		t.patch["affinity"] = pod.Affinity
	} else {
		t.hybridNodes(pod.Affinity)
	}
	if len(pod.ImagePullSecrets) > 0 {
		t.patch["imagePullSecrets"] = pod.ImagePullSecrets
	}
	t.tolerations(pod.Tolerations)
	for _, c := range pod.Containers {
		if c.Name != t.main.Name {
			t.lose("container "+c.Name, "it is not in our manifest ("+c.Image+")", "if you need it, patch it into kustomization.yaml")
		}
	}
	for _, c := range pod.InitContainers {
		if !isMultus(c) {
			t.lose("init container "+c.Name, "it is not in our manifest ("+c.Image+")", "if you need it, patch it into kustomization.yaml")
		}
	}
	t.environment()
	if class := pod.PriorityClassName; class != "" && class != "system-node-critical" {
		t.change("priorityClassName becomes system-node-critical", "it was "+class, "")
	}
	if t.ds.Spec.UpdateStrategy.Type == "OnDelete" {
		t.lose("updateStrategy OnDelete", "ours replaces a tenth of the nodes' pods at a time", "patch it into kustomization.yaml, if you replace pods by hand")
	}
}

// ownAffinity tells an affinity that says more than which system and architecture a node
// has, or what the overlay says.
func (t *target) ownAffinity(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	if a.PodAffinity != nil || a.PodAntiAffinity != nil || a.NodeAffinity == nil {
		return true
	}
	known := covered
	if t.onEKS() {
		known = append(slices.Clone(known), computeType)
	}
	own := len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0
	for _, term := range requiredTerms(a) {
		own = own || len(term.MatchFields) > 0 || slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return !slices.Contains(known, e.Key)
		})
	}
	return own
}

const computeType = "eks.amazonaws.com/compute-type"

func (t *target) onEKS() bool { return t.distribution.name == "eks" && t.kind == Thick }

// hybridNodes tells who loses Multus where the overlay's affinity takes the place of one that
// left them in.
func (t *target) hybridNodes(a *corev1.Affinity) {
	joined := slices.ContainsFunc(requiredTerms(a), func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == computeType && e.Operator == corev1.NodeSelectorOpNotIn && !slices.Contains(e.Values, "hybrid")
		})
	})
	if t.onEKS() && joined {
		t.change("nodes of the compute type hybrid are left out", "they do not run the VPC CNI, so 10-aws.conflist never comes there", "if you have such nodes, run `multusctl uninstall` there, or patch the affinity and the primary network for them")
	}
}

func requiredTerms(a *corev1.Affinity) []corev1.NodeSelectorTerm {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func (t *target) tolerations(all []corev1.Toleration) {
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		tolerated := slices.ContainsFunc(all, func(x corev1.Toleration) bool {
			return x.Operator == corev1.TolerationOpExists && x.Key == "" && (x.Effect == "" || x.Effect == effect)
		})
		if !tolerated {
			t.change(fmt.Sprintf("every taint %s is tolerated", effect), "pods on a tainted node need somebody to ask for their networks too", "")
		}
	}
}

// environment: the delegates of v4's daemon got its variables.
func (t *target) environment() {
	for _, e := range t.main.Env {
		if e.Name == "MULTUS_NODE_NAME" || strings.HasPrefix(e.Name, "KUBERNETES_SERVICE_") {
			continue
		}
		do := "patch it into kustomization.yaml, if the daemon needs it"
		if t.Kind == Thick {
			do += "; delegates get it where the key delegateEnv names it"
		}
		t.lose("environment variable "+e.Name, "it is not in our manifest", do)
	}
}

// memory is the limit of the daemon.
func (t *target) memory() string {
	if t.kind != Hotplug {
		return thickMemory
	}
	had, err := resource.ParseQuantity(t.MemoryLimit)
	if err == nil && had.Cmp(resource.MustParse(hotplugMemory)) > 0 {
		return t.MemoryLimit
	}
	return hotplugMemory
}

// daemonSet is the patch of our DaemonSet; nil where ours is right as it is.
func (t *target) daemonSet() object {
	volumes := t.volumes()
	daemon := object{"name": "kube-multus"}
	var added []object
	for _, m := range t.extra {
		name := volumeName(m.Host)
		volumes = append(volumes, object{"name": name, "hostPath": object{"path": m.Host, "type": "DirectoryOrCreate"}})
		seen := object{"name": name, "mountPath": m.Pod}
		if !m.writable {
			seen["readOnly"] = true
		}
		added = append(added, seen)
	}
	if len(added) > 0 {
		daemon["volumeMounts"] = added
	}
	if memory := t.memory(); memory != thickMemory && memory != hotplugMemory {
		daemon["resources"] = object{"requests": object{"memory": memory}, "limits": object{"memory": memory}}
	}
	if len(daemon) > 1 {
		t.patch["containers"] = []object{daemon}
	}
	if len(volumes) > 0 {
		t.patch["volumes"] = volumes
	}
	if len(t.patch) == 0 {
		return nil
	}
	return object{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": "kube-multus-ds"},
		"spec": object{"template": object{"spec": t.patch}},
	}
}

// volumes are those of the base whose folder is another here.
func (t *target) volumes() (all []object) {
	conf, bin, kubelet := usualConf, usualBin, usualKubelet
	if t.kind == Thick {
		conf, bin, kubelet = t.distribution.conf, t.distribution.bin, t.distribution.kubelet
	}
	volume := func(name, host string) {
		all = append(all, object{"name": name, "hostPath": object{"path": host}})
	}
	if t.conf != conf {
		volume("cni", t.conf)
	}
	if t.bin != bin {
		volume("cnibin", t.bin)
	}
	if t.kubelet != kubelet {
		volume("pod-resources", path.Join(t.kubelet, "pod-resources"))
		volume("device-plugins", path.Join(t.kubelet, "device-plugins"))
	}
	return all
}

func volumeName(host string) string {
	name := "host" + strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(strings.ToLower(host))
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}
