package deploy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// documented are the keys that a component's first comment asks for.
func documented(t *testing.T, component string) map[string]any {
	t.Helper()
	text := comments(read(t, deployDir+"/"+component+"/kustomization.yaml"))
	_, rest, found := strings.Cut(text, "daemon-config.json:")
	if !found {
		t.Fatalf("%s: no comment says which keys it needs", component)
	}
	keys, _, _ := strings.Cut(rest, "docs/")
	var asked map[string]any
	if err := yaml.Unmarshal([]byte("{"+strings.TrimSpace(strings.ReplaceAll(keys, "\n", " "))+"}"), &asked); err != nil {
		t.Fatalf("%s: %v in %s", component, err, keys)
	}
	return asked
}

// TestC1_16DeployPerNodeCertificates: the component, what it adds to the pod and to the
// role, and that the keys of its comment fit its mounts.
func TestC1_16DeployPerNodeCertificates(t *testing.T) {
	thick, got := installation(t, "thick"), composed(t, []string{"thick"}, "per-node-certificates")
	same(t, "the pod's token", ptr(false), got.pod().AutomountServiceAccountToken)
	got.pod().AutomountServiceAccountToken = nil
	daemon := &got.pod().Containers[0]
	added := []corev1.VolumeMount{
		{Name: "kubelet-kubeconfig", MountPath: "/etc/kubernetes/kubelet.conf", ReadOnly: true},
		{Name: "kubelet-pki", MountPath: "/var/lib/kubelet/pki", ReadOnly: true},
		{Name: "certificates", MountPath: "/run/multus-certificates"},
	}
	same(t, "mounts", added, withoutThose(thick.pod().Containers[0].VolumeMounts, daemon.VolumeMounts, func(m corev1.VolumeMount) string { return m.Name }))
	file, folder := corev1.HostPathFile, corev1.HostPathDirectory
	same(t, "volumes", []corev1.Volume{
		{Name: "kubelet-kubeconfig", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/kubelet.conf", Type: &file}}},
		{Name: "kubelet-pki", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/pki", Type: &folder}}},
		{Name: "certificates", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("1Mi"))}}},
	}, withoutThose(thick.pod().Volumes, got.pod().Volumes, func(v corev1.Volume) string { return v.Name }))
	daemon.VolumeMounts, got.pod().Volumes = thick.pod().Containers[0].VolumeMounts, thick.pod().Volumes
	same(t, "nothing else of the pod", thick.set, got.set)
	same(t, "rules", append(thick.role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get"},
	}), got.role.Rules)
	same(t, "subjects", append(thick.binding.Subjects, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:multus"}), got.binding.Subjects)

	same(t, "the keys", map[string]any{"perNodeCertificate": map[string]any{
		"enabled": true, "bootstrapKubeconfig": added[0].MountPath, "certDir": added[2].MountPath, "certDuration": "24h",
	}}, documented(t, "per-node-certificates"))
	same(t, "OpenShift's volumes", append(installation(t, "overlays/openshift").scc.Volumes, "emptyDir"),
		composed(t, []string{"overlays/openshift"}, "per-node-certificates").scc.Volumes)
}

// TestC1_16DeployPerNodeCertificatesThin: the container that the component adds to the pod,
// in the view of the node on which the plugin runs, and the same rights as with thick.
func TestC1_16DeployPerNodeCertificatesThin(t *testing.T) {
	const component = "per-node-certificates/thin"
	thin, got := installation(t, "thin"), composed(t, []string{"thin"}, component)
	same(t, "the pod's token", ptr(false), got.pod().AutomountServiceAccountToken)
	got.pod().AutomountServiceAccountToken = nil
	file, folder, made := corev1.HostPathFile, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate
	same(t, "volumes", []corev1.Volume{
		{Name: "kubelet-kubeconfig", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/kubelet.conf", Type: &file}}},
		{Name: "kubelet-pki", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/pki", Type: &folder}}},
		{Name: "run-multus", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/multus", Type: &made}}},
	}, withoutThose(thin.pod().Volumes, got.pod().Volumes, func(v corev1.Volume) string { return v.Name }))

	const program, certDir = "/usr/src/multus-cni/bin/kubeconfig_generator", "/run/multus/certificates"
	little := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("50Mi")}
	same(t, "containers", append(thin.pod().Containers, corev1.Container{
		Name:    "kubeconfig-generator",
		Image:   thin.pod().Containers[0].Image,
		Command: []string{program},
		Args: []string{
			"--bootstrap-config=/etc/kubernetes/kubelet.conf", "--certdir=" + certDir, "--cert-duration=24h",
			"--kubeconfig=/host/etc/cni/net.d/multus.d/multus.kubeconfig",
		},
		Env:                      []corev1.EnvVar{{Name: "MULTUS_NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
		Resources:                corev1.ResourceRequirements{Requests: little, Limits: little}, // the pod stays Guaranteed
		SecurityContext:          confined(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{program, "readycheck", "--certdir=" + certDir}}},
			PeriodSeconds: 10, TimeoutSeconds: 10,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "cni", MountPath: "/host/etc/cni/net.d"},
			{Name: "kubelet-kubeconfig", MountPath: "/etc/kubernetes/kubelet.conf", ReadOnly: true},
			{Name: "kubelet-pki", MountPath: "/var/lib/kubelet/pki", ReadOnly: true},
			{Name: "run-multus", MountPath: "/run/multus"},
		},
	}), got.pod().Containers)
	got.pod().Volumes, got.pod().Containers = thin.pod().Volumes, thin.pod().Containers
	same(t, "nothing else of the pod", thin.set, got.set)

	thick := composed(t, []string{"thick"}, "per-node-certificates")
	same(t, "rules", append(thin.role.Rules, thick.role.Rules[len(thin.role.Rules):]...), got.role.Rules)
	same(t, "subjects", thick.binding.Subjects, got.binding.Subjects)
	const approver = "Deployment multus-cert-approver"
	theirs, ours := thick.others[approver].(*appsv1.Deployment), got.others[approver].(*appsv1.Deployment)
	same(t, "the approver's image", thin.pod().Containers[0].Image, ours.Spec.Template.Spec.Containers[0].Image)
	ours.Spec.Template.Spec.Containers[0].Image = theirs.Spec.Template.Spec.Containers[0].Image
	same(t, "the approver", thick.others, got.others)
}

// withoutThose are the items of all that are not in some, by name.
func withoutThose[T any](some, all []T, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(all), func(item T) bool {
		return slices.ContainsFunc(some, func(s T) bool { return name(s) == name(item) })
	})
}

// TestC1_12DeployCertApprover: its rules, which are the verbs of package approver, and its
// pod, which may do nothing else.
func TestC1_12DeployCertApprover(t *testing.T) {
	r := composed(t, []string{"hotplug"}, "per-node-certificates")
	const name = "multus-cert-approver"
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: name}}
	same(t, "rules", []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/approval"}, Verbs: []string{"update"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"kubernetes.io/kube-apiserver-client"}, Verbs: []string{"approve"}},
	}, r.others["ClusterRole "+name].(*rbacv1.ClusterRole).Rules)
	same(t, "its binding", account, r.others["ClusterRoleBinding "+name].(*rbacv1.ClusterRoleBinding).Subjects)
	same(t, "rules for events", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}}}, r.others["Role "+name].(*rbacv1.Role).Rules)
	same(t, "their binding", account, r.others["RoleBinding "+name].(*rbacv1.RoleBinding).Subjects)
	same(t, "their namespace", "default", r.others["RoleBinding "+name].(*rbacv1.RoleBinding).Namespace)

	deployment := r.others["Deployment "+name].(*appsv1.Deployment)
	pod := deployment.Spec.Template.Spec
	same(t, "its labels", deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels)
	same(t, "its account", name, pod.ServiceAccountName)
	same(t, "its user", &corev1.PodSecurityContext{
		RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(65534)), RunAsGroup: ptr(int64(65534)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.SecurityContext)
	same(t, "what of the host it has", []bool{false, false, false, false}, []bool{pod.HostNetwork, pod.HostPID, pod.HostIPC, len(pod.Volumes) > 0})
	same(t, "containers", 1, len(pod.Containers))
	same(t, "its container", confined(), pod.Containers[0].SecurityContext)
	same(t, "its program", []string{"/usr/src/multus-cni/bin/cert-approver"}, pod.Containers[0].Command)
	same(t, "its image", r.pod().Containers[0].Image, pod.Containers[0].Image)
}

// TestI4_DeployProtectedMetrics: the component that puts TLS and tokens before the metrics.
func TestI4_DeployProtectedMetrics(t *testing.T) {
	folders := []string{"thick", "monitoring"}
	open, got := composed(t, folders, "monitoring/port"), composed(t, folders, "monitoring/port", "monitoring/protected")
	daemon := &got.pod().Containers[0]
	same(t, "mounts", []corev1.VolumeMount{{Name: "metrics-tls", MountPath: "/run/multus-metrics", ReadOnly: true}},
		withoutThose(open.pod().Containers[0].VolumeMounts, daemon.VolumeMounts, func(m corev1.VolumeMount) string { return m.Name }))
	same(t, "volumes", []corev1.Volume{{Name: "metrics-tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "multus-metrics-tls", DefaultMode: ptr(int32(0o400)),
		Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "tls.crt"}, {Key: "tls.key", Path: "tls.key"}},
	}}}}, withoutThose(open.pod().Volumes, got.pod().Volumes, func(v corev1.Volume) string { return v.Name }))
	daemon.VolumeMounts, got.pod().Volumes = open.pod().Containers[0].VolumeMounts, open.pod().Volumes
	same(t, "nothing else of the pod", open.set, got.set)
	same(t, "rules", append(open.role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	), got.role.Rules)
	const reader = "multus-metrics-reader"
	same(t, "the reader's rules", []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, got.others["ClusterRole "+reader].(*rbacv1.ClusterRole).Rules)
	same(t, "the reader", []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: reader}}, got.others["ClusterRoleBinding "+reader].(*rbacv1.ClusterRoleBinding).Subjects)
	token := got.others["Secret "+reader].(*corev1.Secret)
	same(t, "its token", []any{corev1.SecretTypeServiceAccountToken, map[string]string{"kubernetes.io/service-account.name": reader}}, []any{token.Type, token.Annotations})

	endpoint := got.monitor.Spec.PodMetricsEndpoints[0]
	same(t, "the scheme", ptr(monitoringv1.Scheme("https")), endpoint.Scheme)
	selector := func(name, key string) *corev1.SecretKeySelector {
		return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
	}
	same(t, "TLS", &monitoringv1.SafeTLSConfig{ServerName: ptr("multus-metrics"), CA: monitoringv1.SecretOrConfigMap{Secret: selector("multus-metrics-tls", "ca.crt")}}, endpoint.TLSConfig)
	same(t, "the token", &monitoringv1.SafeAuthorization{Credentials: selector(reader, "token")}, endpoint.Authorization)
	endpoint.Scheme, endpoint.TLSConfig, endpoint.Authorization = nil, nil, nil
	same(t, "nothing else of the endpoint", open.monitor.Spec.PodMetricsEndpoints, []monitoringv1.PodMetricsEndpoint{endpoint})

	same(t, "the keys", map[string]any{
		"metricsTLS": map[string]any{"certFile": "/run/multus-metrics/tls.crt", "keyFile": "/run/multus-metrics/tls.key"}, "metricsTokenReview": true,
	}, documented(t, "monitoring/protected"))
	same(t, "OpenShift's volumes", append(installation(t, "overlays/openshift").scc.Volumes, "secret"),
		composed(t, []string{"overlays/openshift"}, "monitoring/protected").scc.Volumes)
}

// TestI4_ChartComponents: a value does what a component and its keys do.
func TestI4_ChartComponents(t *testing.T) {
	for name, c := range map[string]struct {
		values     string
		resources  []string
		components []string
	}{
		"certificates":          {"perNodeCertificate: {enabled: true}", []string{"thick"}, []string{"per-node-certificates"}},
		"certificates, hotplug": {"{mode: hotplug, perNodeCertificate: {enabled: true}}", []string{"hotplug"}, []string{"per-node-certificates"}},
		"certificates, thin":    {"{mode: thin, perNodeCertificate: {enabled: true}}", []string{"thin"}, []string{"per-node-certificates/thin"}},
		"metrics":               {"monitoring: {enabled: true, protected: true}", []string{"thick", "monitoring"}, []string{"monitoring/port", "monitoring/protected"}},
		"both on OpenShift": {
			read(t, deployDir+"/chart/distributions/openshift.yaml") + "\nperNodeCertificate: {enabled: true}\nmonitoring: {enabled: true, protected: true}\n",
			[]string{"overlays/openshift", "monitoring"},
			[]string{"per-node-certificates", "monitoring/port", "monitoring/protected"},
		},
	} {
		want, got := composed(t, c.resources, c.components...), charted(t, c.values)
		if want.config != nil {
			want.config.Data["daemon-config.json"] = withKeys(t, want.keys(t), c.components)
		}
		sameInstallation(t, name, want, got)
		same(t, name+"'s monitor", want.monitor, got.monitor)
	}
	pulled := charted(t, "{image: {repository: r.example/m, tag: v9, pullSecrets: [one, two]}, perNodeCertificate: {enabled: true}}")
	pod := pulled.others["Deployment multus-cert-approver"].(*appsv1.Deployment).Spec.Template.Spec
	same(t, "the approver's image", "r.example/m:v9", pod.Containers[0].Image)
	same(t, "its pull secrets", []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}, pod.ImagePullSecrets)

	elsewhere := charted(t, "{mode: thin, openshift: true, hostPaths: {cniConf: /srv/net.d}, perNodeCertificate: {enabled: true, kubeconfig: /srv/k/conf, pki: /srv/pki, duration: 12h}}")
	same(t, "thin's constraints", constraints(false), elsewhere.scc)
	same(t, "the arguments", []string{
		"--bootstrap-config=/srv/k/conf", "--certdir=/run/multus/certificates", "--cert-duration=12h", "--kubeconfig=/host/etc/cni/net.d/multus.d/multus.kubeconfig",
	}, elsewhere.pod().Containers[1].Args)
	same(t, "the node's folders", []string{
		"install-multus-binary: /opt/cni/bin at /host/opt/cni/bin",
		"kube-multus: /srv/net.d at /host/etc/cni/net.d",
		"kube-multus: /etc/cni/multus/net.d at /host/etc/cni/multus/net.d, read only",
		"kubeconfig-generator: /srv/net.d at /host/etc/cni/net.d",
		"kubeconfig-generator: /srv/k/conf at /srv/k/conf, read only",
		"kubeconfig-generator: /srv/pki at /srv/pki, read only",
		"kubeconfig-generator: /run/multus at /run/multus",
	}, mounts(elsewhere))
}

// withKeys is a daemon-config.json with the keys that components need beside.
func withKeys(t *testing.T, keys map[string]any, components []string) string {
	t.Helper()
	for _, component := range components {
		if component == "monitoring/port" {
			keys["metricsPort"] = 9091
			continue
		}
		for key, value := range documented(t, component) {
			keys[key] = value
		}
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestI4_DeployRightsHaveReasons: the guide to security has a row with a reason for every
// right that any of the accounts has, and for no other.
func TestI4_DeployRightsHaveReasons(t *testing.T) {
	guide := read(t, "../../docs/security.md")
	r := composed(t, []string{"thick"}, "per-node-certificates", "monitoring/protected", "claim-status", "strays")
	var rules []rbacv1.PolicyRule
	for _, role := range []*rbacv1.ClusterRole{r.role, r.others["ClusterRole multus-cert-approver"].(*rbacv1.ClusterRole)} {
		rules = append(rules, role.Rules...)
	}
	want := map[string]string{}
	for _, rule := range append(rules, r.others["Role multus-cert-approver"].(*rbacv1.Role).Rules...) {
		for _, name := range rule.Resources {
			want[name+": "+strings.Join(rule.Verbs, ", ")] = ""
		}
	}
	got := map[string]string{}
	for _, section := range []string{"\n| resource | verbs | why | added by |\n", "\n| resource | verbs | why |\n"} {
		_, table, found := strings.Cut(guide, section)
		if !found {
			t.Fatalf("no table %q", section)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for row := range strings.Lines(table) {
			cells := strings.Split(row, " | ")
			if strings.HasPrefix(row, "| ---") || len(cells) < 3 {
				continue
			}
			if len(strings.TrimSpace(cells[2])) < 10 {
				t.Errorf("no reason in %s", row)
			}
			// `events` in `default`, `signers` NAME: the first word in quotes names the resource, unless a comma follows.
			for i, name := range strings.Split(cells[0], "`") {
				if i%2 == 1 && (i == 1 || strings.Contains(cells[0], "`, `")) {
					got[name+": "+cells[1]] = ""
				}
			}
		}
	}
	same(t, "rights", want, got)
}
