package deploy

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// securityContextConstraints has the fields of security.openshift.io/v1 that we set. The
// module with the kind's own type is published in a version that is too old for them.
type securityContextConstraints struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`

	AllowHostDirVolumePlugin bool                `json:"allowHostDirVolumePlugin"`
	AllowHostIPC             bool                `json:"allowHostIPC"`
	AllowHostNetwork         bool                `json:"allowHostNetwork"`
	AllowHostPID             bool                `json:"allowHostPID"`
	AllowHostPorts           bool                `json:"allowHostPorts"`
	AllowPrivilegedContainer bool                `json:"allowPrivilegedContainer"`
	AllowPrivilegeEscalation bool                `json:"allowPrivilegeEscalation"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`
	ReadOnlyRootFilesystem   bool                `json:"readOnlyRootFilesystem"`
	RunAsUser                strategy            `json:"runAsUser"`
	SELinuxContext           strategy            `json:"seLinuxContext"`
	FSGroup                  strategy            `json:"fsGroup"`
	SupplementalGroups       strategy            `json:"supplementalGroups"`
	SeccompProfiles          []string            `json:"seccompProfiles"`
	Volumes                  []string            `json:"volumes"`
	Users                    []string            `json:"users"`
}

type strategy struct {
	Type string `json:"type"`
}

// constraints is what the pod of deploy/thick needs, and no more; with hotplug it is
// privileged.
func constraints(hotplug bool) *securityContextConstraints {
	anyOf := strategy{Type: "RunAsAny"}
	scc := &securityContextConstraints{
		TypeMeta:                 metav1.TypeMeta{APIVersion: "security.openshift.io/v1", Kind: "SecurityContextConstraints"},
		ObjectMeta:               metav1.ObjectMeta{Name: "multus"},
		AllowHostDirVolumePlugin: true, AllowHostNetwork: true, AllowHostPorts: true,
		AllowHostPID: hotplug, AllowPrivilegedContainer: hotplug, AllowPrivilegeEscalation: hotplug,
		AllowedCapabilities: []corev1.Capability{}, DefaultAddCapabilities: []corev1.Capability{}, RequiredDropCapabilities: []corev1.Capability{"ALL"},
		ReadOnlyRootFilesystem: true,
		RunAsUser:              anyOf, SELinuxContext: anyOf, FSGroup: anyOf, SupplementalGroups: anyOf,
		SeccompProfiles: []string{"runtime/default"},
		Volumes:         []string{"configMap", "hostPath", "projected"},
		Users:           []string{"system:serviceaccount:kube-system:multus"},
	}
	if hotplug {
		scc.RequiredDropCapabilities = []corev1.Capability{}
	}
	return scc
}
