package node_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
)

func TestT9Sigterm(t *testing.T) {
	for name, tt := range map[string]struct {
		settings object
		stays    bool
	}{
		"absent": {nil, true},
		"false":  {object{"cleanupConfigOnExit": false}, true},
		"true":   {object{"cleanupConfigOnExit": true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{settings: tt.settings})
			n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
			var inFlight []*running
			var pods []*pod
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				p := n.pod(name, selecting("gated"))
				pods = append(pods, p)
				inFlight = append(inFlight, n.begin("ADD", p))
			}
			n.metric("multus_adds_in_flight 5")
			conf := n.read("conf/00-multus.conf")
			n.Must(n.daemon.Process.Signal(syscall.SIGTERM))
			// Readiness goes first; the rest still works.
			n.eventually(func() error {
				if n.get(api.PathReadyz) == nil {
					return errors.New("the daemon is still ready")
				}
				return nil
			})
			n.Must(n.get(api.PathHealthz))
			n.Same("the configuration while it drains", conf, n.read("conf/00-multus.conf"))
			late := n.pod("late", selecting("gated"))
			_, err := n.add(late)
			n.fails(err, types.ErrTryAgainLater, "shutting down")
			n.write("open", "")
			for _, r := range inFlight {
				n.Must(<-r.done)
			}
			d := n.daemon
			n.daemon = nil
			n.Must(<-d.ended)
			_, err = os.Stat(n.path("conf/00-multus.conf"))
			n.Same("the configuration stays", tt.stays, err == nil)
			n.write("conf/00-multus.conf", conf)
			_, err = n.add(late)
			n.fails(err, types.ErrTryAgainLater, n.path("run/multus.sock"))
			for _, p := range pods {
				n.detach(p)
			}
			n.clean()
		})
	}
}

// In-flight ADDs that do not end in time do not keep the daemon; they go on without it.
func TestT9DrainEnds(t *testing.T) {
	n := newNode(t, setup{settings: object{"drainTimeout": "200ms"}})
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	p := n.pod("p", selecting("gated"))
	r := n.begin("ADD", p)
	n.awaitCall("ADD gated")
	n.Must(n.stopDaemon(syscall.SIGTERM))
	n.write("open", "")
	n.Must(<-r.done)
	n.startDaemon()
	n.detach(p)
	n.clean()
}

func TestT10FixedConfigurationFile(t *testing.T) {
	n := newNode(t, setup{noDaemon: true})
	n.writeThin() // any valid file
	fixed := n.settings
	fixed["type"] = "multus-shim"
	n.write("fixed.conf", text(fixed))
	n.Must(os.Remove(n.path("conf/00-multus.conf")))
	n.settings["multusConfigFile"], n.settings["unknownKey"] = n.path("fixed.conf"), 1
	delete(n.settings, "type")
	n.launchDaemon()
	n.eventually(n.exists("conf/fixed.conf"))
	n.eventually(func() error { return n.get(api.PathReadyz) })
	n.Must(os.Rename(n.path("conf/fixed.conf"), n.path("conf/00-multus.conf"))) // where the rig's runtime looks
	p := threeNetworks(n)
	n.attach(p)
	n.detach(p)
	n.clean()
}

func TestT5PinnedPrimaryThroughTheDaemon(t *testing.T) {
	n := newNode(t, setup{noDaemon: true, settings: object{"multusMasterCNI": "50-main.conflist"}})
	n.launchDaemon()
	n.eventually(func() error { return n.get(api.PathHealthz) })
	n.eventually(func() error {
		err := n.get(api.PathReadyz)
		if err == nil {
			return errors.New("the daemon is ready without its primary network")
		}
		return nil
	})
	_, err := os.Stat(n.path("conf/00-multus.conf"))
	n.Same("nothing is generated", true, errors.Is(err, os.ErrNotExist))
	n.write("conf/50-main.conflist", text(n.bridged("main", 7)))
	n.eventually(func() error { return n.get(api.PathReadyz) })
	p, plain := threeNetworks(n), n.pod("plain", nil)
	n.Same("the address", []string{"10.7.0.2/24"}, n.attach(p))
	n.stopDaemon(syscall.SIGTERM)
	n.Same("the address without the daemon", []string{"10.7.0.3/24"}, n.attach(plain))
	n.detach(p)
	n.detach(plain)
	n.clean()
}

// A lower-named primary network that appears is taken, by the daemon and by plain
// pods alike; what was attached before is given back as it was made.
func TestT6LowerPrimaryAppears(t *testing.T) {
	n := newNode(t, setup{})
	before := n.pod("before", nil)
	n.Same("the address", []string{"10.1.0.2/24"}, n.attach(before))
	n.write("conf/08-self.conflist", `{"cniVersion":"1.0.0","name":"self","plugins":[{"type":"multus-shim"}]}`)
	n.write("conf/02-half.conf", `{"cniVersion":"1.0.0","na`)
	n.write("conf/05-first.conflist", text(n.bridged("first", 6)))
	p := n.pod("p", nil)
	n.eventually(func() error {
		got := n.attach(p)
		n.detach(p)
		if !strings.HasPrefix(got[0], "10.6.0.") {
			return errors.New("a pod still gets " + got[0])
		}
		return nil
	})
	n.Must(os.Remove(n.path("conf/10-primary.conflist")))
	n.detach(before)
	n.clean()
}

// What a mistake in the configuration looks like is in test/script; here is that a
// daemon with one never serves.
func TestT10WrongTypeEndsTheDaemon(t *testing.T) {
	n := newNode(t, setup{noDaemon: true, settings: object{"metricsPort": "9091"}})
	n.launchDaemon()
	d := n.daemon
	n.daemon = nil
	var exit *exec.ExitError
	if err := <-d.ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the daemon ended with %v, want exit code 1", err)
	}
	n.Same("its only words", "multus-daemon: "+n.path("daemon-config.json")+`: key "metricsPort": expected a number from 0 to 65535, found the text "9091"`+"\n", n.read("daemon.log"))
}
