package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/multus-thick/multus/internal/cniconf"
)

// becomes is the new installation.
func (t *target) becomes() (Becomes, error) {
	b := Becomes{
		Kind: t.kind, Image: t.options.Image + ":" + ourVersion + "-thick", Base: "overlays/" + t.distribution.name,
		DaemonConfig: t.config, MemoryLimit: t.memory(),
	}
	if t.kind == Hotplug {
		b.Base = "hotplug"
	}
	patch := t.daemonSet()
	var err error
	if b.Files, err = t.files(b.Base, patch); err != nil {
		return b, err
	}
	if b.Chart, err = t.chart(); err != nil {
		return b, err
	}
	b.Steps = t.steps(b.Image)
	return b, nil
}

func (t *target) files(base string, patch object) ([]File, error) {
	var configFile bytes.Buffer
	if err := json.Indent(&configFile, t.config.Bytes(), "", "    "); err != nil {
		return nil, err
	}
	configFile.WriteByte('\n')
	resources := []string{path.Join(t.options.Repository, "deploy", base)}
	files := []File{{"daemon-config.json", configFile.String()}}
	add := func(name string, documents ...any) error {
		var all []byte
		for i, d := range documents {
			text, err := yaml.Marshal(d)
			if err != nil {
				return err
			}
			if i > 0 {
				all = append(all, "---\n"...)
			}
			all = append(all, text...)
		}
		files = append(files, File{name, string(all)})
		return nil
	}
	// The overlay for EKS names an image of its own.
	from := "localhost/multus-cni"
	if base == "overlays/eks" {
		from = "111122223333.dkr.ecr.us-west-2.amazonaws.com/multus-cni"
	}
	kustomization := object{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"images": []object{{"name": from, "newName": t.options.Image, "newTag": ourVersion + "-thick"}},
		"configMapGenerator": []object{{
			"name": "multus-daemon-config", "namespace": "kube-system", "behavior": "replace", "files": []string{"daemon-config.json"},
		}},
		"generatorOptions": object{"disableNameSuffixHash": true},
	}
	if patch != nil {
		kustomization["patches"] = []object{{"path": "daemonset.yaml"}}
		if err := add("daemonset.yaml", patch); err != nil {
			return nil, err
		}
	}
	if len(t.networks) > 0 {
		resources = append(resources, "networks.yaml")
		var all []any
		for _, n := range t.networks {
			all = append(all, n.definition())
		}
		if err := add("networks.yaml", all...); err != nil {
			return nil, err
		}
	}
	kustomization["resources"] = resources
	err := add("kustomization.yaml", kustomization)
	return files, err
}

func (n network) definition() object {
	return object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": object{"name": n.name, "namespace": "kube-system"}, "spec": object{"config": string(n.conf.Bytes())},
	}
}

// chart is the same for Helm; nil where the chart has no value for what the patch says.
func (t *target) chart() (*Chart, error) {
	for part := range t.patch {
		if part == "containers" || part == "nodeSelector" || part == "volumes" && len(t.extra) > 0 {
			return nil, nil
		}
	}
	if len(t.networks) > 0 {
		return nil, nil
	}
	c := &Chart{Distribution: "deploy/chart/distributions/" + t.distribution.name + ".yaml"}
	if t.distribution.name == "kubeadm" {
		c.Distribution = ""
	}
	values := object{"image": object{"repository": t.options.Image}, "config": t.chartConfig()}
	if t.kind == Hotplug {
		values["mode"] = "hotplug"
	}
	paths := object{}
	for name, is := range map[string][2]string{"cniConf": {t.conf, t.distribution.conf}, "cniBin": {t.bin, t.distribution.bin}, "kubelet": {t.kubelet, t.distribution.kubelet}} {
		if is[0] != is[1] {
			paths[name] = is[0]
		}
	}
	if len(paths) > 0 {
		values["hostPaths"] = paths
	}
	if affinity := t.patch["affinity"]; affinity != nil {
		values["affinity"] = affinity
	}
	if secrets := t.patch["imagePullSecrets"]; secrets != nil {
		values["image"].(object)["pullSecrets"] = names(t)
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	c.Values = string(text)
	return c, nil
}

func names(t *target) (all []string) {
	for _, s := range t.ds.Spec.Template.Spec.ImagePullSecrets {
		all = append(all, s.Name)
	}
	return all
}

// chartConfig is the configuration without what the chart sets by itself. A file that the
// distribution pins and the installation does not is taken back.
func (t *target) chartConfig() cniconf.Object {
	own := []string{"chrootDir", "cniConfigDir", "multusConfigFile", "socketDir"}
	if at, _ := t.config.Get("multusAutoconfigDir"); string(at) == `"`+podConf+`"` {
		own = append(own, "multusAutoconfigDir")
	}
	c := t.config.Without(own...)
	if t.distribution.primary != "" && !slices.Contains(c.Keys(), "multusMasterCNI") {
		c = c.With("multusMasterCNI", cniconf.Quote(""))
	}
	return c
}
