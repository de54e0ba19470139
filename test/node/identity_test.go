package node_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

// static makes a pod one that the kubelet read from a file.
func static(p *pod) { p.Annotations[netspec.AnnotationConfigSource] = "file" }

// The runtime names a static pod by a UID of the manifest's, the API its mirror by another.
func TestT22StaticPod(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.bridged("net-a", 2))
	p := n.sandbox("static", selecting("net-a"))
	static(p)
	mirror := *p
	mirror.UID = "mirror"
	n.api.PutPod(n.apiPod(&mirror))
	n.attach(p)
	n.Same("status entries on the mirror", 2, len(n.status(p)))
	n.detach(p)
	n.clean()
}

// Its mirror may come later: what the runtime hands over is enough.
func TestT22MirrorIsNotThereYet(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.bridged("net-a", 2))
	p := n.sandbox("static", selecting("net-a"))
	static(p)
	n.attach(p)
	n.Same("interfaces", []string{"lo", "eth0", "net1"}, n.podLinks(p))
	n.detach(p)
	p.old = true // and where it is not: not yet
	_, err := n.add(p)
	n.fails(err, types.ErrTryAgainLater, "pod default/static")
	n.clean()
}

func TestT22PodMadeAnew(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.bridged("net-a", 2))
	n.nad("net-b", n.bridged("net-b", 3))
	old := n.pod("p", selecting("net-a"))
	n.attach(old)
	anew := n.sandbox("p-anew", selecting("net-b"))
	anew.Name, anew.UID = "p", "anew"
	// The watch has heard nothing of the new pod, for about a second.
	n.api.Fail(apiserver.Failure{Path: "/pods", Watch: true, Code: 500, Times: 1})
	n.api.CutWatches()
	n.api.PutPod(n.apiPod(anew))
	n.attach(anew)
	n.Same("the networks of the new pod", "default/net-b", n.rawStatus(anew)[1].Name)
	n.detach(old)
	var err error
	n.eventually(func() error {
		if _, err = n.add(old); err == nil {
			return errors.New("the old pod still gets its networks")
		}
		return nil
	})
	n.fails(err, types.ErrTryAgainLater, "pod default/p", "uid-p", "anew")
	n.detach(old)
	n.Same("the new pod's status after the old one's DEL", "default/net-b", n.rawStatus(anew)[1].Name)
	n.detach(anew)
	n.clean()
}

func TestT22RuntimeWithoutUID(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin})
			p := threeNetworks(n)
			uid := p.UID
			p.UID = ""
			n.attach(p)
			n.Same("status entries", 3, len(n.status(p)))
			rec, err := n.record(p)
			n.Must(err)
			n.Same("the recorded UID", uid, rec.Plan.Pod.UID)
			n.detach(p)
			n.clean()
		})
	}
}

// Other writers change the pod while its status is written, and the server fails.
func TestT19StatusThroughTheDaemon(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.bridged("net-a", 2))
	p := n.sandbox("p", selecting("net-a"))
	full := n.apiPod(p)
	claim := "claim-x"
	full.Status = corev1.PodStatus{
		Phase:                 corev1.PodPending,
		Conditions:            []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}},
	}
	n.api.PutPod(full)
	other := func() { // another writer is faster
		changed := full.DeepCopy()
		changed.Annotations["other"] = "writer"
		n.api.PutPod(changed)
	}
	n.api.Fail(apiserver.Failure{Method: "PATCH", Path: "/pods/p", Code: 409, Times: 2, Do: other})
	n.api.Fail(apiserver.Failure{Method: "PATCH", Path: "/pods/p", Code: 500, Times: 1})
	n.attach(p)
	got := n.api.Pod(p.Namespace, p.Name)
	metadata := maps.Clone(got["metadata"].(object))
	annotations := maps.Clone(metadata["annotations"].(object))
	n.Same("status entries", 2, len(n.status(p)))
	delete(annotations, netspec.AnnotationStatus)
	n.Same("other annotations", object{netspec.AnnotationNetworks: "net-a", "other": "writer"}, annotations)
	want := decoded(t, []byte(text(full.Status)))
	n.Same("the pod's status", want, decoded(t, []byte(text(got["status"]))))
	n.detach(p)
	n.clean()
}

func TestT19StatusOfAnotherPodOfThisName(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.bridged("net-a", 2))
	p := n.pod("p", selecting("net-a"))
	anew := n.apiPod(p)
	anew.UID = ktypes.UID("anew")
	n.api.Fail(apiserver.Failure{Method: "PATCH", Path: "/pods/p", Code: 500, Times: 1, Do: func() { n.api.PutPod(anew) }})
	n.attach(p)
	n.Same("status entries of the new pod", 0, len(n.status(p)))
	n.detach(p)
	n.clean()
}

func TestI2_StatusRequired(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, settings: object{"networkStatus": "required"}})
			p, plain := threeNetworks(n), n.pod("plain", nil)
			for _, method := range []string{"PATCH", "PUT"} { // the second is tried where the first is forbidden
				n.api.Fail(apiserver.Failure{Method: method, Path: "/pods/", Code: 403, Times: 2})
			}
			for _, p := range []*pod{p, plain} {
				_, err := n.add(p)
				if err == nil {
					t.Fatal("the ADD succeeded without a status")
				}
				n.fails(err, code(err), "pod default/"+p.Name, "network-status")
				n.Same("interfaces", []string{"lo"}, n.podLinks(p))
			}
			n.clean()
			n.attach(p)
			n.attach(plain)
			n.Same("status entries", "3 1", fmt.Sprint(len(n.status(p)), len(n.status(plain))))
			n.detach(p)
			n.detach(plain)
			n.clean()
		})
	}
}
