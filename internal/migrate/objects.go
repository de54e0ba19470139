package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/multus-thick/multus/internal/manifest"
)

// Objects collects what was given.
type Objects struct {
	sets    []daemonSet
	maps    []corev1.ConfigMap
	values  []chartValues
	hotplug bool // the dynamic networks controller is there
	errs    []error
}

type daemonSet struct {
	place string
	appsv1.DaemonSet
}

// chartValues are the values of the RKE2 and K3s chart.
type chartValues struct {
	place string
	Image struct {
		Repository, Tag string
	}
	ThickPlugin               struct{ Enabled bool }
	DynamicNetworksController struct{ Enabled bool }
	Config                    struct {
		Conf json.RawMessage `json:"cni_conf"`
	}
}

// Add takes in a text of YAML or JSON documents. Objects that tell nothing of Multus are
// left out.
func (o *Objects) Add(path string, text []byte) error {
	err := manifest.Documents(path, text, o.object)
	return errors.Join(append(o.errs, err)...)
}

func (o *Objects) object(place string, body []byte) {
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name string }
		Items    []json.RawMessage
		Config   json.RawMessage
	}
	if json.Unmarshal(body, &head) != nil {
		return // no object of Kubernetes, and no values: nothing of ours
	}
	var err error
	switch {
	case strings.HasSuffix(head.Kind, "List"):
		for i, item := range head.Items {
			o.object(fmt.Sprintf("%s, item %d", place, i+1), withKind(item, strings.TrimSuffix(head.Kind, "List")))
		}
	case head.Kind == "DaemonSet":
		set := daemonSet{place: place}
		err = json.Unmarshal(body, &set.DaemonSet)
		o.set(set)
	case head.Kind == "ConfigMap":
		var m corev1.ConfigMap
		err = json.Unmarshal(body, &m)
		o.maps = append(o.maps, m)
	case strings.HasPrefix(head.Kind, "HelmChart") && strings.Contains(head.Metadata.Name, "multus"):
		err = o.helmChart(place, body)
	case head.Kind == "" && strings.Contains(string(head.Config), `"cni_conf"`):
		err = o.chart(place, body)
	}
	if err != nil {
		o.errs = append(o.errs, fmt.Errorf("%s: %s %s: %w", place, head.Kind, head.Metadata.Name, err))
	}
}

// withKind gives an item of the API's lists its kind, which only the list has.
func withKind(item json.RawMessage, kind string) json.RawMessage {
	var fields map[string]json.RawMessage
	if kind == "" || json.Unmarshal(item, &fields) != nil || fields["kind"] != nil {
		return item
	}
	fields["kind"] = json.RawMessage(`"` + kind + `"`)
	raw, err := json.Marshal(fields)
	if err != nil {
		return item
	}
	return raw
}

func (o *Objects) set(s daemonSet) {
	for _, c := range s.Spec.Template.Spec.Containers {
		o.hotplug = o.hotplug || strings.Contains(c.Image, "dynamic-networks-controller")
	}
	if mainContainer(s.Spec.Template.Spec) != nil {
		if s.Namespace == "" {
			s.Namespace = metav1.NamespaceDefault
		}
		o.sets = append(o.sets, s)
	}
}

// helmChart takes in the values of a HelmChart, or HelmChartConfig, of RKE2 and K3s.
func (o *Objects) helmChart(place string, body []byte) error {
	var chart struct {
		Spec struct{ ValuesContent string }
	}
	if err := json.Unmarshal(body, &chart); err != nil {
		return err
	}
	text, err := yaml.YAMLToJSON([]byte(chart.Spec.ValuesContent))
	if err != nil {
		return fmt.Errorf("valuesContent: %w", err)
	}
	return o.chart(place, text)
}

func (o *Objects) chart(place string, body []byte) error {
	v := chartValues{place: place}
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	o.hotplug = o.hotplug || v.DynamicNetworksController.Enabled
	o.values = append(o.values, v)
	return nil
}

// ConfigMaps are the names, "namespace/name", of those that the DaemonSets mount.
func (o *Objects) ConfigMaps() []string {
	var all []string
	for _, s := range o.sets {
		for _, name := range configMaps(s.Spec.Template.Spec) {
			all = append(all, s.Namespace+"/"+name)
		}
	}
	return all
}

func configMaps(pod corev1.PodSpec) []string {
	var all []string
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			all = append(all, v.ConfigMap.Name)
		}
	}
	return all
}
