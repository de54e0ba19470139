package deploy

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	crdv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deployDir = "../../deploy"

// installations are what a user may install, beside the CRD.
var installations = []string{"thick", "hotplug", "thin"}

// rendered are the objects that a folder makes.
type rendered struct {
	names     []string // kind, namespace and name, in the order of installation
	set       *appsv1.DaemonSet
	config    *corev1.ConfigMap
	account   *corev1.ServiceAccount
	role      *rbacv1.ClusterRole
	binding   *rbacv1.ClusterRoleBinding
	resource  *crdv1.CustomResourceDefinition
	scc       *securityContextConstraints
	monitor   *monitoringv1.PodMonitor
	rules     *monitoringv1.PrometheusRule
	dashboard *corev1.ConfigMap
	others    map[string]any // what components add, by kind and name
}

// render makes a folder's objects, as kubectl apply -k does.
func render(t *testing.T, dir string) *rendered {
	t.Helper()
	return renderIn(t, filesys.MakeFsOnDisk(), dir)
}

func renderIn(t *testing.T, files filesys.FileSystem, dir string) *rendered {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl does: a configuration before the daemon that reads it
	objects, err := krusty.MakeKustomizer(options).Run(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &rendered{}
	for _, object := range objects.Resources() {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, text)
	}
	return r
}

// add reads one object as the kind that it is: a field that the kind does not have is an
// error.
func (r *rendered) add(t *testing.T, text []byte) {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &meta); err != nil {
		t.Fatal(err)
	}
	r.names = append(r.names, fmt.Sprintf("%s %s/%s", meta.Kind, meta.Namespace, meta.Name))
	strict, err := json.UnmarshalStrict(text, r.place(meta.Kind, meta.Name))
	if err := errors.Join(append(strict, err)...); err != nil {
		t.Fatalf("%s: %v", meta.Name, err)
	}
}

// place is where an object goes. Those of components have other names than multus.
func (r *rendered) place(kind, name string) any {
	if kinds := ofComponents()[kind]; kinds != nil && name != "multus" {
		if r.others == nil {
			r.others = map[string]any{}
		}
		object := kinds()
		r.others[kind+" "+name] = object
		return object
	}
	return r.own(kind, name)
}

// ofComponents makes objects of the kinds that components add.
func ofComponents() map[string]func() any {
	return map[string]func() any{
		"ServiceAccount":     func() any { return &corev1.ServiceAccount{} },
		"Secret":             func() any { return &corev1.Secret{} },
		"ClusterRole":        func() any { return &rbacv1.ClusterRole{} },
		"ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
		"Role":               func() any { return &rbacv1.Role{} },
		"RoleBinding":        func() any { return &rbacv1.RoleBinding{} },
		"Deployment":         func() any { return &appsv1.Deployment{} },
	}
}

// own is where one of multus's own objects goes; nil, which nothing can be read into, for kinds that we
// do not install.
func (r *rendered) own(kind, name string) any {
	switch kind {
	case "DaemonSet":
		return fresh(&r.set)
	case "ConfigMap":
		if name == "multus-dashboard" {
			return fresh(&r.dashboard)
		}
		return fresh(&r.config)
	case "ServiceAccount":
		return fresh(&r.account)
	case "ClusterRole":
		return fresh(&r.role)
	case "ClusterRoleBinding":
		return fresh(&r.binding)
	case "CustomResourceDefinition":
		return fresh(&r.resource)
	case "SecurityContextConstraints":
		return fresh(&r.scc)
	case "PodMonitor":
		return fresh(&r.monitor)
	case "PrometheusRule":
		return fresh(&r.rules)
	}
	return nil
}

func fresh[T any](place **T) *T {
	*place = new(T)
	return *place
}

func installation(t *testing.T, name string) *rendered {
	t.Helper()
	return render(t, filepath.Join(deployDir, name))
}

// pod is the DaemonSet's pod.
func (r *rendered) pod() *corev1.PodSpec { return &r.set.Spec.Template.Spec }

// containers are all of the pod's, those that run first first.
func (r *rendered) containers() []corev1.Container {
	return append(append([]corev1.Container(nil), r.pod().InitContainers...), r.pod().Containers...)
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestI3_DeployMakes(t *testing.T) {
	thin := []string{"ServiceAccount kube-system/multus", "ClusterRole /multus", "ClusterRoleBinding /multus", "DaemonSet kube-system/kube-multus-ds"}
	thick := []string{thin[0], thin[1], thin[2], "ConfigMap kube-system/multus-daemon-config", thin[3]}
	for name, want := range map[string][]string{
		"crd":     {"CustomResourceDefinition /network-attachment-definitions.k8s.cni.cncf.io"},
		"thick":   thick,
		"hotplug": thick,
		"thin":    thin,
	} {
		same(t, name, want, installation(t, name).names)
	}
}

// TestC1_13CRD: clients, and kubectl's users, know the kind by these names.
func TestC1_13CRD(t *testing.T) {
	spec := installation(t, "crd").resource.Spec
	want := crdv1.CustomResourceDefinitionSpec{
		Group: "k8s.cni.cncf.io", Scope: crdv1.NamespaceScoped,
		Names: crdv1.CustomResourceDefinitionNames{
			Kind: "NetworkAttachmentDefinition", Plural: "network-attachment-definitions", Singular: "network-attachment-definition",
			ShortNames: []string{"net-attach-def", "nad"},
		},
		Versions: []crdv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
	}
	fields := spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	spec.Versions[0].Schema = nil
	same(t, "the kind", want, spec)
	same(t, "the type of spec.config", "string", fields["config"].Type)
	same(t, "fields of spec", 1, len(fields))
}

// TestC1_12RBAC: the verbs of package kube, and no others.
func TestC1_12RBAC(t *testing.T) {
	role := func(read ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{"k8s.cni.cncf.io"}, Resources: []string{"network-attachment-definitions"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"list"}},
		}
	}
	for name, want := range map[string][]rbacv1.PolicyRule{
		"thick":   role("get", "list", "watch"),
		"hotplug": role("get", "list", "watch"),
		"thin":    role("get"),
	} {
		r := installation(t, name)
		same(t, name, want, r.role.Rules)
		same(t, name+"'s role", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.role.Name}, r.binding.RoleRef)
		same(t, name+"'s account", []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: r.account.Namespace, Name: r.account.Name}}, r.binding.Subjects)
		same(t, name+"'s pod", r.account.Name, r.pod().ServiceAccountName)
	}
}

// TestI3_DeploySamples: a sample is the manifest that it was made of, but for the image.
func TestI3_DeploySamples(t *testing.T) {
	for name, image := range map[string]string{"eks-thick-v4": "v5.0.0-thick", "eks-thin-v3": "v5.0.0"} {
		changed, original := sample(t, name), sample(t, name+"/original")
		for _, list := range [][]corev1.Container{original.pod().InitContainers, original.pod().Containers} {
			for i := range list {
				same(t, name+"'s image before", true, len(list[i].Image) > 0 && list[i].Image != "localhost/multus-cni:"+image)
				list[i].Image = "localhost/multus-cni:" + image
			}
		}
		same(t, name+"'s DaemonSet", original.set, changed.set)
		same(t, name+"'s ConfigMap", original.config, changed.config)
	}
}

func sample(t *testing.T, name string) *rendered {
	t.Helper()
	return render(t, filepath.Join("samples", name))
}

// TestR9DeployTakesThePlaceOfV4: kubectl apply changes v4's objects into ours, and leaves none behind.
func TestR9DeployTakesThePlaceOfV4(t *testing.T) {
	identity := func(r *rendered) []any {
		config := metav1.ObjectMeta{}
		if r.config != nil {
			config = r.config.ObjectMeta
		}
		var containers []string
		for _, c := range r.containers() {
			containers = append(containers, c.Name)
		}
		return []any{r.set.ObjectMeta, r.set.Spec.Selector, r.set.Spec.Template.Labels, config, r.account.ObjectMeta, r.role.Name, r.binding.Name, r.binding.RoleRef, r.binding.Subjects, containers}
	}
	v4 := identity(sample(t, "eks-thick-v4"))
	same(t, "thick", v4, identity(installation(t, "thick")))
	same(t, "hotplug", v4, identity(installation(t, "hotplug")))
	v4[3] = metav1.ObjectMeta{} // thin has no ConfigMap, and leaves v4's alone
	same(t, "thin", v4, identity(installation(t, "thin")))
}
