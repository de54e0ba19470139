//go:build e2e

package e2e_test

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/test/cluster/lab"
)

// testImage is Debian's busybox, which the lab puts on every node.
const testImage = lab.BusyboxImage

type object = map[string]any

// nad is a NetworkAttachmentDefinition; conf is a CNI configuration, nil for none.
func nad(name string, conf any) object {
	o := object{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": object{"name": name}}
	if conf != nil {
		o["spec"] = object{"config": text(conf)}
	}
	return o
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// pod is one that sleeps on a node. networks is its annotation; empty for none.
func pod(name, node, networks string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       spec(node),
	}
	if networks != "" {
		p.Annotations = map[string]string{netspec.AnnotationNetworks: networks}
	}
	return p
}

func spec(node string) corev1.PodSpec {
	second := int64(1)
	return corev1.PodSpec{
		NodeName:                      node,
		TerminationGracePeriodSeconds: &second,
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "main", Image: testImage, ImagePullPolicy: corev1.PullNever,
			// PID 1 gets only the signals that it handles.
			Command: []string{"sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"},
		}},
	}
}

// The networks of the suite. bridged and pointToPoint are of one node, with addresses
// from host-local; macvlan is on the cable that both nodes have, with static addresses.
func bridged(name, subnet string) object {
	// A bridge keeps the address of its first network, so each subnet has its own.
	bridge := "br" + strings.NewReplacer(".", "-", "/", "-", ":", "").Replace(strings.TrimSuffix(subnet, ".0.0/16"))
	return object{
		"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": bridge[:min(15, len(bridge))], "isGateway": true,
		"capabilities": object{"ips": true, "mac": true}, "ipam": hostLocal(subnet),
	}
}

func pointToPoint(name, subnet string) object {
	return object{"cniVersion": "1.0.0", "name": name, "type": "ptp", "ipam": hostLocal(subnet)}
}

func macvlan(name string) object {
	return object{
		"cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth1", "mode": "bridge",
		"capabilities": object{"ips": true, "mac": true}, "ipam": object{"type": "static"},
	}
}

func hostLocal(subnets ...string) object {
	var ranges []any
	for _, subnet := range subnets {
		ranges = append(ranges, []any{object{"subnet": subnet}})
	}
	return object{"type": "host-local", "ranges": ranges}
}
