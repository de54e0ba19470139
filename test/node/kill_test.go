package node_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The runtime's time for an ADD is up: it kills the plugin alone, and deletes at once.
func TestR11DelWaitsForAnOrphan(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	p := n.pod("p", selecting("gated"))
	r := n.begin("ADD", p)
	n.awaitCall("ADD gated")
	r.kill()
	d := n.begin("DEL", p)
	select {
	case err := <-d.done:
		t.Fatalf("DEL did not wait for the delegate that still runs: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	n.Same("calls before the orphan ended", []string{"ADD gated"}, n.began())
	n.write("open", "")
	n.Must(<-d.done)
	n.Same("calls", []string{"ADD gated", "DEL gated"}, n.began())
	n.Same("calls that ran at once", []string(nil), overlaps(n.calls()))
	n.clean()
}

// The runtime dies during an ADD, and no DEL will come for what it does not know of.
func TestR11ResultThatNobodyReads(t *testing.T) {
	n := newNode(t, setup{})
	p := n.pod("p", selecting("net-a"))
	n.nad("net-a", n.fake("net-a", nil))
	if _, err := (&call{node: n, deaf: true}).add(p); err == nil {
		t.Error("the plugin succeeded")
	}
	n.Same("calls", []string{"ADD net-a", "DEL net-a"}, n.began())
	n.Same("interfaces", []string{"lo"}, n.podLinks(p))
	n.clean()
}

// A replayed ADD waits too, and finds nothing of the first one in its way.
func TestR11ReplayWaitsForAnOrphan(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	p := n.pod("p", selecting("gated"))
	r := n.begin("ADD", p)
	n.awaitCall("ADD gated")
	r.kill()
	again := n.begin("ADD", p)
	select {
	case err := <-again.done:
		t.Fatalf("the ADD did not wait for the delegate that still runs: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	n.Same("calls before the orphan ended", []string{"ADD gated"}, n.began())
	n.write("open", "")
	n.Must(<-again.done)
	n.Same("calls", []string{"ADD gated", "DEL gated", "ADD gated"}, n.began())
	n.Same("leases", 1, len(n.leases()))
	n.detach(p)
	n.clean()
}

func TestT14DelAfterAnAddThatNeverFinished(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.fake("net-a", object{"ADD": object{"waitFor": n.path("open")}}))
	n.nad("net-b", n.fake("net-b", nil))
	p, never := n.pod("p", selecting("net-a,net-b")), n.pod("never", selecting("net-a"))
	r := n.begin("ADD", p)
	n.awaitCall("ADD net-a")
	r.kill()
	n.write("open", "")
	for _, p := range []*pod{p, never} {
		n.api.DeletePod(p.Namespace, p.Name)
		for range 3 {
			begin := time.Now()
			n.detach(p)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("a DEL took %v", took)
			}
		}
	}
	// The intent named net-b too, which may have run for all that DEL knows.
	n.Same("calls", []string{"ADD net-a", "DEL net-b", "DEL net-a"}, n.began())
	n.clean()
}

func TestT15DamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(record string) error{
		"empty":        func(record string) error { return os.Truncate(record, 0) },
		"half":         func(record string) error { return os.Truncate(record, 700) },
		"other schema": func(record string) error { return os.WriteFile(record, []byte(`{"hello":"world"}`), 0o600) },
		"a folder": func(record string) error {
			if err := os.Remove(record); err != nil {
				return err
			}
			return os.Mkdir(record, 0o700)
		},
		"one digit": func(record string) error {
			raw, err := os.ReadFile(record)
			if err != nil {
				return err
			}
			return os.WriteFile(record, []byte(strings.Replace(string(raw), "10.1.0.2", "10.1.0.3", 1)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{})
			p := threeNetworks(n)
			n.attach(p)
			n.write("state/.tmp-leftover", "")
			n.Must(damage(n.path("state/" + p.ContainerID)))
			n.detach(p)
			n.Same("interfaces", []string{"lo"}, n.podLinks(p))
			n.Same("damaged records that are kept", 1, len(n.entries("state/.damaged")))
			n.Must(os.Remove(n.path("state/.tmp-leftover"))) // it is removed when it is an hour old
			n.Must(os.RemoveAll(n.path("state/.damaged")))
			n.clean()
		})
	}
}

func TestT16NamespaceGone(t *testing.T) {
	for name, gone := range map[string]func(*pod){
		"empty path":    func(p *pod) { p.NetNS = "" },
		"vanished path": func(p *pod) { p.NetNS += "-gone" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{})
			n.nad("fake", n.fake("fake", nil))
			p := threeNetworks(n)
			p.Annotations = selecting("lan,p2p,fake")
			n.api.PutPod(n.apiPod(p))
			n.attach(p)
			n.removeSandbox(p)
			gone(p)
			n.detach(p)
			n.Same("calls", []string{"ADD fake", "DEL fake"}, n.began())
			n.clean()
		})
	}
}

func TestT17OneDelFails(t *testing.T) {
	down := object{"code": 100, "msg": "address store down"}
	n := newNode(t, setup{})
	n.nad("net-a", n.fake("net-a", object{"DEL": object{"failWhile": n.path("down"), "error": down}}))
	n.nad("net-b", n.fake("net-b", object{"DEL": object{"error": object{"code": 999, "msg": "Link not found"}}}))
	p := n.pod("p", selecting("net-a,net-b"))
	n.attach(p)
	n.forget()
	n.write("down", "")
	for range 2 {
		n.fails(n.del(p), 100, "pod default/p", "network default/net-a", "address store down")
	}
	n.Same("leases while net-a is not given back", []string(nil), n.leases())
	n.Must(os.Remove(n.path("down")))
	n.detach(p)
	n.Same("calls", []string{"DEL net-b", "DEL net-a", "DEL net-a", "DEL net-a"}, n.began())
	n.clean()
}

func TestT18Rollback(t *testing.T) {
	n := newNode(t, setup{})
	n.nad("net-a", n.fake("net-a", nil))
	n.nad("net-b", n.fake("net-b", object{"ADD": object{"error": object{"code": 101, "msg": "no room", "details": "on the switch"}}}))
	p := threeNetworks(n)
	p.Annotations = selecting("lan,net-a,net-b")
	n.api.PutPod(n.apiPod(p))
	for range 20 {
		n.forget()
		_, err := n.add(p)
		n.fails(err, 101, "pod default/web", "network default/net-b", "no room")
		n.Same("calls", []string{"ADD net-a", "ADD net-b", "DEL net-b", "DEL net-a"}, n.began())
		n.clean()
		if t.Failed() {
			return
		}
	}
	if diff := cmp.Diff([]string{"lo"}, n.podLinks(p)); diff != "" {
		t.Error(diff)
	}
	n.Same("status entries", 0, len(n.status(p)))
}
