package kube

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

var nadVersion = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

const nadResource = "network-attachment-definitions"

// nad is a NetworkAttachmentDefinition as the API sends it. A type of its own costs a
// tenth of what decoding into maps does.
type nad struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Config configText `json:"config"`
	} `json:"spec"`
}

type nadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []nad `json:"items"`
}

// configText is spec.config. The CRD says that it is a string. Where a CRD without a
// schema has let an object through, its JSON means the same, and one such definition
// must not keep the watch from reading all others.
type configText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *configText) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		*t = configText(strings.TrimPrefix(string(data), "null"))
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}

// DeepCopyObject implements runtime.Object.
func (n *nad) DeepCopyObject() runtime.Object {
	c := *n
	n.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *nadList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]nad, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*nad)
	}
	return &c
}

// row is what is kept of a NetworkAttachmentDefinition.
func (n *nad) row() plan.NAD {
	return plan.NAD{
		Ref:         netspec.Ref{Namespace: n.Namespace, Name: n.Name},
		Config:      string(n.Spec.Config),
		Annotations: kept(n.Annotations),
	}
}

// nadConfig is cfg for a REST client of this group, whose answers decode into nad.
func nadConfig(cfg *rest.Config) *rest.Config {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(nadVersion.WithKind("NetworkAttachmentDefinition"), &nad{})
	scheme.AddKnownTypeWithName(nadVersion.WithKind("NetworkAttachmentDefinitionList"), &nadList{})
	metav1.AddToGroupVersion(scheme, nadVersion)                         // the options and events of watches
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/apis"
	cfg.GroupVersion = &nadVersion
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg
}
