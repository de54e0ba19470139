package node_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/netspec"
)

// awayModes are the ways in which the daemon is not there. Each leaves the generated
// configuration behind, as the daemon does.
var awayModes = map[string]func(*node){
	"no socket":  func(n *node) { n.stopDaemon(syscall.SIGTERM) },
	"stale file": func(n *node) { n.stopDaemon(syscall.SIGKILL) },
	"never answers": func(n *node) {
		n.stopDaemon(syscall.SIGTERM)
		l, err := net.Listen("unix", n.path("run/multus.sock"))
		n.Must(err)
		n.Cleanup(func() { _ = l.Close() }) // the kernel takes connections, nobody reads
	},
}

func TestR3PlainPodWithTheDaemonAway(t *testing.T) {
	for name, leave := range awayModes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{})
			leave(n)
			p := n.pod("plain", nil)
			begin := time.Now()
			n.Same("the address", []string{"10.1.0.2/24"}, n.attach(p))
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("the ADD took %v", took)
			}
			n.Must(n.check(p))
			n.Must(n.cniStatus())
			n.detach(p)
			n.clean()
		})
	}
}

func TestT12DelWithTheDaemonAway(t *testing.T) {
	for name, leave := range awayModes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{})
			p := threeNetworks(n)
			n.attach(p)
			leave(n)
			n.api.Refuse()
			begin := time.Now()
			n.detach(p)
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("the DEL took %v", took)
			}
			n.clean()
		})
	}
}

func TestT4AnnotatedPodWithTheDaemonAway(t *testing.T) {
	for name, leave := range awayModes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{settings: object{"addTimeout": "1500ms"}})
			leave(n)
			p := threeNetworks(n)
			begin := time.Now()
			_, err := n.add(p)
			n.fails(err, types.ErrTryAgainLater, "daemon", n.path("run/multus.sock"))
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("the ADD took %v", took)
			}
			n.clean()
		})
	}
}

// A node that comes up: fifty sandboxes want their ADD before the daemon is there.
func TestT4RebootWithoutADaemon(t *testing.T) {
	n := newNode(t, setup{primary: quick})
	n.stopDaemon(syscall.SIGTERM)
	n.nad("net-a", n.fake("net-a", nil))
	var all []*running
	var pods []*pod
	for i := range 50 {
		p := n.pod(fmt.Sprintf("p%d", i), selecting("net-a"))
		pods = append(pods, p)
		all = append(all, n.begin("ADD", p))
	}
	for _, r := range all {
		n.fails(<-r.done, types.ErrTryAgainLater, n.path("run/multus.sock"))
	}
	n.startDaemon()
	inParallel(pods, func(p *pod) {
		if _, err := n.add(p); err != nil {
			t.Errorf("the ADD of %s once the daemon is there: %v", p.Name, err)
		}
	})
	inParallel(pods, func(p *pod) {
		if err := n.del(p); err != nil {
			t.Errorf("the DEL of %s: %v", p.Name, err)
		}
	})
	n.clean()
}

// An ADD that waits for the socket goes on as soon as the daemon is there.
func TestT4WaitsForTheDaemon(t *testing.T) {
	n := newNode(t, setup{settings: object{"daemonTimeout": "10s"}})
	n.stopDaemon(syscall.SIGTERM)
	p := threeNetworks(n)
	r := n.begin("ADD", p)
	n.startDaemon()
	n.Must(<-r.done)
	n.detach(p)
	n.clean()
}

// An old runtime hands over no annotations: nobody knows that the pod is plain.
func TestR1OldRuntimeWithTheDaemonAway(t *testing.T) {
	n := newNode(t, setup{})
	p, plain := threeNetworks(n), n.pod("plain", nil)
	p.old, plain.old = true, true
	n.attach(p)
	n.Same("the pod's interfaces", []string{"lo", "eth0", "lan0", "net2"}, n.podLinks(p))
	n.detach(p)
	n.stopDaemon(syscall.SIGTERM)
	_, err := n.add(plain)
	n.fails(err, types.ErrTryAgainLater, n.path("run/multus.sock"))
	n.clean()
}

func TestR6IndicatorFile(t *testing.T) {
	n := newNode(t, setup{noDaemon: true})
	n.settings["readinessindicatorfile"] = n.path("ready")
	n.write("ready", "")
	n.startDaemon()
	plain, chosen := n.pod("plain", nil), threeNetworks(n)
	n.attach(plain)
	n.attach(chosen)
	n.Must(os.Remove(n.path("ready")))
	// The daemon withdraws its configuration a second later; a runtime that has read it
	// before still calls.
	kept := n.read("conf/00-multus.conf")
	for _, p := range []*pod{n.pod("plain-2", nil), n.pod("chosen-2", chosen.Annotations)} {
		n.write("conf/00-multus.conf", kept)
		_, err := n.add(p)
		n.fails(err, types.ErrTryAgainLater, "readiness indicator file", n.path("ready"))
	}
	n.fails(n.cniStatus(), types.ErrPluginNotAvailable, n.path("ready"))
	n.detach(plain)
	n.detach(chosen)
	n.clean()
}

func TestT23SlowAPI(t *testing.T) {
	n := newNode(t, setup{})
	p := threeNetworks(n)
	n.api.SetLatency(700 * time.Millisecond)
	n.attach(p)
	n.Same("status entries", 3, len(n.status(p)))
	n.detach(p)
	n.clean()
}

func TestT23TokenThatChanges(t *testing.T) {
	n := newNode(t, setup{token: "old"})
	p := threeNetworks(n)
	n.attach(p)
	n.detach(p)
	n.api.RequireToken("new")
	n.api.CutWatches()
	n.write("token", "new")
	late := n.pod("late", p.Annotations)
	n.attach(late)
	n.eventually(func() error {
		if got := len(n.status(late)); got != 3 {
			return fmt.Errorf("%d status entries", got)
		}
		return nil
	})
	n.detach(late)
	n.clean()
}

func TestT23ServerDown(t *testing.T) {
	n := newNode(t, setup{})
	p, plain := threeNetworks(n), n.pod("plain", nil)
	n.attach(p) // the networks are in the daemon's cache now, and the pod too
	n.detach(p)
	n.api.Refuse()
	// Of one pod the daemon has not heard: what the runtime hands over is enough.
	unheard := n.sandbox("unheard", p.Annotations)
	begin := time.Now()
	inParallel([]*pod{p, unheard}, func(p *pod) {
		if _, err := n.add(p); err != nil {
			t.Errorf("the ADD of %s: %v", p.Name, err)
		}
	})
	if took := time.Since(begin); took < 4*time.Second || took > 9*time.Second {
		t.Errorf("the ADDs took %v, want about 5 s: the time for which they wait for their status", took)
	}
	n.Same("interfaces", []string{"lo", "eth0", "lan0", "net2"}, n.podLinks(unheard))
	n.detach(unheard)
	n.attach(plain)
	n.in(n.api.Accept)
	for _, p := range []*pod{p, plain} {
		n.eventually(func() error { return n.hasStatus(p) })
		n.detach(p)
	}
	n.clean()
}

// hasStatus tells whether the pod's status names what is on its primary interface.
func (n *node) hasStatus(p *pod) error {
	var ips []string
	for _, a := range n.facts(p, "eth0").Addresses {
		ips = append(ips, a.Addr().String())
	}
	for _, e := range n.status(p) {
		if e.Interface == "eth0" && slices.Equal(e.IPs, ips) {
			return nil
		}
	}
	return fmt.Errorf("the status of %s is %v, want eth0 with %v", p.Name, n.status(p), ips)
}

func TestT23ColdStart(t *testing.T) {
	n := newNode(t, setup{noDaemon: true})
	p, plain := threeNetworks(n), n.pod("plain", nil)
	n.api.Refuse()
	n.launchDaemon()
	n.eventually(n.exists("conf/00-multus.conf"))
	_, err := n.add(p)
	n.fails(err, types.ErrTryAgainLater, "pod default/web")
	n.attach(plain)
	n.in(n.api.Accept)
	n.eventually(func() error { _, err := n.add(p); return err })
	n.detach(p)
	n.detach(plain)
	n.clean()
}

// What was attached while the daemon was away is published when it is back.
func TestR1StatusOfWhatTheDaemonMissed(t *testing.T) {
	n := newNode(t, setup{})
	n.stopDaemon(syscall.SIGTERM)
	p := n.pod("plain", nil)
	n.attach(p)
	n.age(p)
	n.startDaemon()
	n.eventually(func() error { return n.hasStatus(p) })
	n.Same("network-status", []netspec.StatusEntry{{Name: "primary", Interface: "eth0", IPs: []string{"10.1.0.2"}, MAC: "mac", Default: true, Gateway: []string{"10.1.0.1"}}}, n.status(p))
	n.detach(p)
	n.clean()
}
