package node_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// certify lets the link that the kubeconfig names point to a new certificate, as the
// kubelet does and Multus's own per-node certificates do.
func (n *node) certify(user string) {
	n.Helper()
	pem, err := n.api.Certificate(user)
	n.Must(err)
	n.write("client-"+user+".pem", string(pem))
	n.Must(os.Symlink("client-"+user+".pem", n.path("link")))
	n.Must(os.Rename(n.path("link"), n.path("client.pem")))
}

// A node boots, and the certificate comes later than the daemon and the pods.
func TestT23CertificateComesLate(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, user: "node"})
			p, plain := threeNetworks(n), n.pod("plain", nil)
			n.Must(os.Remove(n.path("client.pem")))
			if !thin {
				n.Must(n.stopDaemon(syscall.SIGTERM))
				n.launchDaemon()
				n.eventually(func() error { // it serves, and says what it waits for
					if err := n.get("/readyz"); err == nil || !strings.Contains(err.Error(), n.path("client.pem")) {
						return errors.New("not ready should name the file that is missing: " + text(err))
					}
					return nil
				})
			}
			_, err := n.add(p)
			n.fails(err, types.ErrTryAgainLater, "pod default/web", n.path("client.pem"))
			n.attach(plain)
			n.certify("node")
			n.eventually(func() error { _, err := n.add(p); return err })
			n.eventually(func() error { return n.hasStatus(p) })
			n.detach(p)
			n.detach(plain)
			n.clean()
		})
	}
}

// The certificate is renewed, and the API server has done with the old one: the same
// daemon goes on, on connections that it holds.
func TestT23CertificateIsSwapped(t *testing.T) {
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, user: "old"})
			p := threeNetworks(n)
			n.attach(p)
			n.detach(p)
			n.api.RequireUser("new")
			refused := n.pod("refused", p.Annotations)
			if thin {
				_, err := n.add(refused)
				n.fails(err, types.ErrTryAgainLater, "pod default/refused", "certificate")
			}
			n.certify("new")
			late := n.pod("late", p.Annotations)
			n.attach(late)
			n.eventually(func() error { return n.hasStatus(late) })
			n.detach(late)
			n.clean()
		})
	}
}
