package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/internal/config"
)

// ourVersion is the tag of deploy/thick; a test compares them.
const ourVersion = "v5.0.0"

// Options say what only the user knows.
type Options struct {
	// Image is the repository of our image, without a tag.
	Image string
	// Repository is the folder that holds deploy/, as the new files name it.
	Repository string
}

// ErrNone says that nothing of Multus was given.
var ErrNone = errors.New("there is no DaemonSet that runs Multus, and there are no values of its chart")

// Report tells of each installation that was given.
func (o *Objects) Report(options Options) (Report, error) {
	var r Report
	for _, s := range o.sets {
		i, err := o.daemonSet(s, options)
		if err != nil {
			return Report{}, fmt.Errorf("%s: %w", s.place, err)
		}
		r.Installations = append(r.Installations, i)
	}
	for _, v := range o.values {
		i, err := o.chartValues(v, options)
		if err != nil {
			return Report{}, fmt.Errorf("%s: %w", v.place, err)
		}
		r.Installations = append(r.Installations, i)
	}
	if len(r.Installations) == 0 {
		return Report{}, ErrNone
	}
	return r, nil
}

// source is one installation, read.
type source struct {
	Found
	settings
	distribution distribution
	conf, bin    string // the node's folders
	kubelet      string
	hotplug      bool
	ds           *daemonSet // nil for the values of a chart
	main         *corev1.Container
}

func (o *Objects) daemonSet(s daemonSet, options Options) (Installation, error) {
	pod := s.Spec.Template.Spec
	c := mainContainer(pod)
	src := source{ds: &s, main: c, hotplug: o.hotplug, conf: usualConf, bin: usualBin, kubelet: usualKubelet}
	src.Found = Found{
		Source: s.place, Namespace: s.Namespace, Name: s.Name, ManagedBy: managedBy(s),
		Kind: kindOf(*c), Version: versionOf(c.Image), Image: c.Image, Args: arguments(*c),
		Mounts: mounts(pod, *c), Probes: probes(*c),
	}
	if limit, given := c.Resources.Limits[corev1.ResourceMemory]; given {
		src.MemoryLimit = limit.String()
	}
	var err error
	if src.settings, err = o.read(s, *c, src.Kind); err != nil {
		return Installation{}, err
	}
	src.folders(pod)
	src.identify(clues{image: c.Image, nodes: nodesText(pod), netns: src.hostOf("/var/run/netns")})
	return src.migrate(options)
}

// managedBy reads who made an object, where that is told.
func managedBy(s daemonSet) string {
	if s.Labels["app.kubernetes.io/managed-by"] == "Helm" {
		return "Helm"
	}
	if s.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		return "kubectl"
	}
	return ""
}

// hostOf is the node's folder that is mounted at one of the places, "" for none.
func (s *source) hostOf(places ...string) string {
	for _, place := range places {
		for _, m := range s.Mounts {
			if m.Pod == place {
				return m.Host
			}
		}
	}
	return ""
}

// folders finds the node's folders: those that keys and arguments name, else those at
// the usual places. The plugins' is often the init container's alone.
func (s *source) folders(pod corev1.PodSpec) {
	s.conf = cmp.Or(s.hostOf(cmp.Or(s.text("cniConfigDir"), podConf)), s.hostOf(podConf, usualConf), usualConf)
	all := slices.Concat([]corev1.Container{*s.main}, pod.InitContainers)
	for _, place := range []string{s.binDir, "/host" + usualBin, usualBin} {
		for _, c := range all {
			for _, m := range mounts(pod, c) {
				if m.Pod == place && s.bin == usualBin {
					s.bin = m.Host
				}
			}
		}
	}
	s.kubelet = cmp.Or(s.hostOf(usualKubelet), usualKubelet)
}

func nodesText(pod corev1.PodSpec) string {
	text, err := json.Marshal([]any{pod.Affinity, pod.NodeSelector})
	if err != nil {
		return ""
	}
	return string(text)
}

// identify fills what follows from the keys.
func (s *source) identify(c clues) {
	c.conf, c.bin, c.primary = s.conf, s.bin, s.text("multusMasterCNI")
	s.distribution, s.Because = guess(c)
	s.Distribution = s.distribution.name
	for _, k := range s.all {
		s.Keys = append(s.Keys, k.Key)
	}
	switch {
	case s.fixed:
		s.Primary = "what " + s.text("multusConfigFile") + " says"
	case s.text("clusterNetwork") != "":
		s.Primary = "the clusterNetwork " + s.text("clusterNetwork")
	case c.primary != "":
		s.Primary = "pinned to " + c.primary
	default:
		s.Primary = "not pinned: the first file by name that is there when Multus looks"
	}
}

// chartValues reads the values of the RKE2 and K3s chart. Its keys name the node's folders.
func (o *Objects) chartValues(v chartValues, options Options) (Installation, error) {
	image := v.Image.Repository + ":" + cmp.Or(v.Image.Tag, "latest")
	s := source{hotplug: o.hotplug, conf: usualConf, bin: usualBin, kubelet: usualKubelet}
	s.Found = Found{Source: v.place, Name: "the values of the chart rke2-multus", ManagedBy: "Helm", Kind: Thin, Version: versionOf(image), Image: image}
	if v.ThickPlugin.Enabled {
		s.Kind = Thick
	}
	if err := s.object(v.Config.Conf, "config.cni_conf", path.Clean); err != nil {
		return Installation{}, err
	}
	s.conf = cmp.Or(s.text("cniConfigDir"), s.text("multusAutoconfigDir"), s.text("confDir"), usualConf)
	s.bin = cmp.Or(s.text("binDir"), usualBin)
	s.identify(clues{image: image})
	return s.migrate(options)
}

// loose tells a tag that means another image tomorrow.
func loose(image string) bool {
	_, tag := splitImage(image)
	return versionOf(image) == "" && !strings.HasPrefix(tag, "sha256:")
}

func (s *source) migrate(options Options) (Installation, error) {
	s.drop()
	t := target{source: s, options: options, remarks: s.remarks, kind: Thick}
	if s.hotplug {
		t.kind = Hotplug
	}
	t.keys()
	t.pod()
	t.differences()
	becomes, err := t.becomes()
	if err != nil {
		return Installation{}, err
	}
	if _, _, err := config.Parse(becomes.DaemonConfig.Bytes()); err != nil {
		return Installation{}, fmt.Errorf("the new configuration: %w", err)
	}
	return Installation{Found: s.Found, Becomes: becomes, Changes: t.changes, NotCarried: t.lost}, nil
}
