package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// The runtime may spell a namespace's path as /run/netns/x and as /var/run/netns/x, of
// which one is a link to the other.
func TestI2_NamespaceUnderTwoNames(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin})
			p := threeNetworks(n)
			n.Must(os.Symlink("pods", n.path("linked")))
			otherwise := *p
			otherwise.NetNS = n.path("linked/" + filepath.Base(p.NetNS))
			n.attach(p)
			n.attach(&otherwise) // the runtime asks again: what was there is replaced
			n.Same("interfaces", []string{"lo", "eth0", "lan0", "net2"}, n.podLinks(p))
			n.Same("leases", 3, len(n.leases()))
			n.Must(n.check(&otherwise))
			n.detach(p)
			n.Same("interfaces", []string{"lo"}, n.podLinks(p))
			n.clean()
		})
	}
}

// Where a namespace should be there is a plain file: its mount is missing.
func TestT16FileInPlaceOfANamespace(t *testing.T) {
	n := newNode(t, setup{})
	p := threeNetworks(n)
	n.removeSandbox(p)
	n.Must(os.WriteFile(p.NetNS, nil, 0o600))
	_, err := n.add(p)
	n.fails(err, types.ErrInvalidNetNS, "pod default/web", p.NetNS, "network namespace")
	n.detach(p) // as runtimes do after a failed ADD
	n.clean()
}

// The file takes the place of the namespace of a pod that is attached: the plugins fail at
// it, for ever, as they do not at a namespace that is gone.
func TestT16FileInPlaceOfAnAttachedNamespace(t *testing.T) {
	n := newNode(t, setup{})
	p := threeNetworks(n)
	n.attach(p)
	n.removeSandbox(p)
	n.Must(os.WriteFile(p.NetNS, nil, 0o600))
	n.detach(p)
	n.clean()
}
