package plan

import (
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
)

// Single plans one network more for a running pod, from a configuration that the
// caller has resolved already, with the attributes of s. The pod is the one that
// the runtime's arguments name.
func Single(cfg *config.Config, call Call, conf cniconf.Config, s netspec.Selection) (Attachment, Pod, error) {
	pod := Subject{Pod: PodOf(call.Args)}
	b := &builder{cfg: cfg, call: call, pod: pod}
	at := netspec.Problem{Network: conf.Name()}
	n := b.allowedPlugins(b.with(network{role: Secondary, name: conf.Name(), selected: &s}, conf, "the configuration", at), at)
	a := Attachment{Role: Plugged, Network: conf.Name(), Interface: s.Interface}
	b.request(&a, n)
	if len(b.problems) > 0 {
		return a, pod.Pod, &Refusal{Pod: pod.Pod, Problems: b.problems}
	}
	return a, pod.Pod, nil
}

// Join plans one network more for a running pod: s, the element of that number of its
// annotation, which names an interface. beside are the attachments that the pod has:
// their devices and default routes are taken. The plan has the one attachment.
func Join(cfg *config.Config, call Call, pod Subject, facts Facts, s netspec.Selection, element int, beside []Attachment) (*Plan, error) {
	b := &builder{cfg: cfg, call: call, pod: pod, facts: facts, optional: map[int]bool{}, beside: beside}
	n := b.selection(s, element, false)
	n.ifName = s.Interface
	return b.plan([]network{n})
}

// PodOf reads the pod's identity from the runtime's CNI_ARGS.
func PodOf(args []Arg) Pod {
	var pod Pod
	for _, pair := range args {
		switch pair[0] {
		case "K8S_POD_NAMESPACE":
			pod.Namespace = pair[1]
		case "K8S_POD_NAME":
			pod.Name = pair[1]
		case "K8S_POD_UID":
			pod.UID = pair[1]
		}
	}
	return pod
}
