package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/netspec"
)

// hotplugging is a node whose daemon follows the annotations of running pods. What the
// daemon runs by itself, it finds in binDir alone.
func hotplugging(t *testing.T) *node {
	t.Helper()
	bin := t.TempDir()
	for _, dir := range []string{pluginDir, fakeDir} {
		plugins, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range plugins {
			if err := os.Symlink(filepath.Join(dir, p.Name()), filepath.Join(bin, p.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return newNode(t, setup{settings: object{"chrootDir": "/", "hotplug": true, "binDir": bin, "logLevel": "verbose"}})
}

// selects changes the annotation of a running pod, as a user does.
func (n *node) selects(p *pod, networks string) {
	n.Helper()
	now := n.apiPod(p)
	annotations, _ := n.api.Pod(p.Namespace, p.Name)["metadata"].(object)["annotations"].(object)
	now.Annotations = map[string]string{}
	for key, value := range annotations {
		now.Annotations[key] = value.(string)
	}
	now.Annotations[netspec.AnnotationNetworks] = networks
	n.api.PutPod(now)
}

// has waits until a pod's status names these interfaces, and demands that it has them.
func (n *node) has(p *pod, interfaces ...string) {
	n.Helper()
	n.eventually(func() error {
		var said []string
		for _, e := range n.rawStatus(p) {
			said = append(said, e.Interface)
		}
		if diff := cmp.Diff(interfaces, said); diff != "" {
			return fmt.Errorf("the status (-want +got):\n%s", diff)
		}
		return nil
	})
	n.Same("interfaces", slices.Sorted(slices.Values(append([]string{"lo"}, interfaces...))), slices.Sorted(slices.Values(n.podLinks(p))))
}

// said waits until the API has an event with this reason and these words.
func (n *node) said(reason, words string) {
	n.Helper()
	n.eventually(func() error {
		var all []string
		for _, e := range n.api.Events() {
			text := fmt.Sprintf("%v: %v", e["reason"], e["message"])
			if strings.HasPrefix(text, reason+": ") && strings.Contains(text, words) {
				return nil
			}
			all = append(all, text)
		}
		return fmt.Errorf("no event %s with %q:\n%s", reason, words, strings.Join(all, "\n"))
	})
}

// condition waits until the pod's condition has this status, "" for no condition, and words.
func (n *node) condition(p *pod, status, words string) {
	n.Helper()
	n.eventually(func() error {
		got, message := "", ""
		is, _ := n.api.Pod(p.Namespace, p.Name)["status"].(object)
		all, _ := is["conditions"].([]any)
		for _, c := range all {
			if o := c.(object); o["type"] == "multus-cni.io/NetworksAttached" {
				got = fmt.Sprint(o["status"])
				message, _ = o["message"].(string)
			}
		}
		if got != status || !strings.Contains(message, words) {
			return fmt.Errorf("the condition is %q: %s", got, message)
		}
		return nil
	})
}

// Networks come and go with the annotation; a definition may be gone by then; the pod's
// deletion gives back the rest.
func TestI5_HotPlugFollowsTheAnnotation(t *testing.T) {
	n := hotplugging(t)
	for i, name := range []string{"net-b", "net-c", "net-d"} {
		conf := n.bridged(name, 2+i)
		conf["plugins"].([]any)[0].(object)["capabilities"] = object{"mac": true, "ips": true}
		n.nad(name, conf)
	}
	p := n.pod("p", selecting("net-b"))
	n.attach(p)
	n.has(p, "eth0", "net1")
	n.selects(p, `[{"name":"net-b"},{"name":"net-c","interface":"hot0","mac":"02:00:00:00:03:03","ips":["10.3.0.77/24"]},{"name":"net-d"}]`)
	const made = "net73b2a59653"
	n.has(p, "eth0", "net1", "hot0", made)
	hot := n.facts(p, "hot0")
	n.Same("what was asked for", []any{"02:00:00:00:03:03", "[10.3.0.77/24]"}, []any{hot.MAC, fmt.Sprint(hot.Addresses)})
	n.said("AddedInterface", "Add hot0 [10.3.0.77/24] from default/net-c")
	n.api.DeleteNAD(podNamespace, "net-c")
	n.selects(p, "net-d")
	n.has(p, "eth0", made)
	n.said("RemovedInterface", "Remove hot0 from default/net-c")
	n.said("RemovedInterface", "Remove net1 from default/net-b")
	n.Same("leases", 2, len(n.leases()))
	n.metric(`multus_hotplug_operations_total{operation="detach",outcome="ok"} 2`)
	n.condition(p, "", "")
	n.detach(p)
	n.clean()
}

// What fails is said on the pod and tried again; what works has nothing to do with it.
func TestI5_HotPlugFails(t *testing.T) {
	n := hotplugging(t)
	n.nad("works", n.fake("works", nil))
	n.nad("fails", n.fake("fails", object{"ADD": object{"failWhile": n.path("down"), "error": object{"code": 101, "msg": "no room"}}}))
	n.write("down", "")
	p := n.pod("p", nil)
	n.attach(p)
	n.selects(p, "fails@f0,works@w0")
	n.said("FailedAddingInterface", "network default/fails (interface f0): ADD: ")
	n.condition(p, "False", "no room")
	n.metric("multus_hotplug_differences 1")
	n.eventually(func() error {
		if got := count(n.began(), "ADD fails"); got < 3 {
			return fmt.Errorf("%d tries", got)
		}
		return nil
	})
	n.Same("what works is attached once", 1, count(n.began(), "ADD works"))
	n.Must(os.Remove(n.path("down")))
	n.condition(p, "True", "")
	n.metric("multus_hotplug_differences 0")
	n.selects(p, "")
	n.eventually(func() error {
		if count(n.began(), "DEL works") != 1 {
			return errors.New("the network is not detached")
		}
		return nil
	})
	n.detach(p)
	n.clean()
}

func count(all []string, what string) (found int) {
	for _, s := range all {
		if s == what {
			found++
		}
	}
	return found
}

// The daemon is killed while it attaches, and the annotation changes while it is away.
func TestI5_HotPlugOverARestart(t *testing.T) {
	n := hotplugging(t)
	n.nad("net-b", n.bridged("net-b", 2))
	n.nad("net-c", n.bridged("net-c", 3))
	n.nad("gated", n.fake("gated", object{"ADD": object{"waitFor": n.path("open")}}))
	p := n.pod("p", selecting("net-b"))
	n.attach(p)
	n.has(p, "eth0", "net1")
	n.selects(p, "net-b,gated@g0")
	n.awaitCall("ADD gated")
	n.stopDaemon(syscall.SIGKILL)
	n.selects(p, "net-c@c0")
	n.write("open", "")
	n.startDaemon()
	n.has(p, "eth0", "c0")
	n.Same("calls", []string{"ADD gated", "DEL gated"}, n.began())
	n.Same("calls that ran at once", []string(nil), overlaps(n.calls()))
	n.condition(p, "", "")
	n.detach(p)
	n.clean()
}

// A network takes the default route over, and gives it back.
func TestT21HotPlugMovesTheDefaultRoute(t *testing.T) {
	n := hotplugging(t)
	n.nad("net-b", n.bridged("net-b", 2))
	p := n.pod("p", nil)
	n.attach(p)
	gateways := func() (all []string) {
		for _, link := range n.podLinks(p) {
			for _, r := range n.facts(p, link).Routes {
				if r.Dst.Bits() == 0 {
					all = append(all, link+" "+r.GW.String())
				}
			}
		}
		return all
	}
	before := gateways()
	n.selects(p, `[{"name":"net-b","interface":"b0","default-route":["10.2.0.1"]}]`)
	n.has(p, "eth0", "b0")
	n.Same("default routes", []string{"b0 10.2.0.1"}, gateways())
	n.Same("the status", [][]string{nil, {"10.2.0.1"}}, [][]string{n.rawStatus(p)[0].Gateway, n.rawStatus(p)[1].Gateway})
	n.selects(p, "")
	n.has(p, "eth0")
	n.Same("default routes", before, gateways())
	n.Same("the status", []string{"10.1.0.1"}, n.rawStatus(p)[0].Gateway)
	n.detach(p)
	n.clean()
}

// A pod starts without its optional networks and gets them late: one whose definition
// is missing, and one whose plugin fails.
func TestI5_OptionalNetworks(t *testing.T) {
	n := hotplugging(t)
	n.nad("fails", n.fake("fails", object{"ADD": object{"failWhile": n.path("down"), "error": object{"code": 101, "msg": "no room"}}}))
	n.nad("net-b", n.bridged("net-b", 2))
	n.write("down", "")
	p := n.pod("p", selecting(`[{"name":"late","interface":"l0","io.multus.optional":true},{"name":"net-b"},{"name":"fails","interface":"f0","io.multus.optional":true}]`))
	n.attach(p)
	n.has(p, "eth0", "net2")
	n.condition(p, "False", "there is no such NetworkAttachmentDefinition")
	n.condition(p, "False", "no room")
	n.said("FailedAddingInterface", "network default/fails (interface f0)")
	n.metric("multus_optional_missing 2")
	n.nad("late", n.bridged("late", 3))
	n.has(p, "eth0", "net2", "l0")
	n.Must(os.Remove(n.path("down")))
	n.condition(p, "True", "")
	n.metric("multus_optional_missing 0")
	n.Same("the fake network is recorded", "default/fails", n.rawStatus(p)[3].Name)
	n.detach(p)
	n.clean()
}

// /delegate and the annotation mean the same: who comes second gets the recorded result,
// and what is gone is deleted.
func TestC1_18DelegateBesideHotPlug(t *testing.T) {
	n := hotplugging(t)
	conf := n.bridged("net-b", 2)
	n.nad("net-b", conf)
	p := n.pod("p", nil)
	n.attach(p)
	n.selects(p, "net-b@b0")
	n.has(p, "eth0", "b0")
	result, err := n.post(api.PathDelegate, "ADD", p, "b0", conf, nil)
	n.Must(err)
	rec, err := n.record(p)
	n.Must(err)
	var recorded object
	n.Must(json.Unmarshal(rec.Outcomes[1].Result, &recorded))
	n.Same("the recorded result", recorded, result)
	n.selects(p, "")
	n.has(p, "eth0")
	_, err = n.post(api.PathDelegate, "DEL", p, "b0", conf, nil)
	n.Must(err)

	_, err = n.post(api.PathDelegate, "ADD", p, "b1", conf, nil)
	n.Must(err)
	n.selects(p, "net-b@b1")
	n.nad("sign", n.fake("sign", nil))
	n.selects(p, "net-b@b1,sign@s0")
	n.awaitCall("ADD sign")
	n.Same("interfaces", []string{"lo", "eth0", "b1"}, n.podLinks(p))
	n.detach(p)
	n.clean()
}

// An installation that may not act on the host says so, in its log and on the pod; a
// pod waits there for its optional networks as for others.
func TestI5_HotPlugWithoutTheHost(t *testing.T) {
	n := newNode(t, setup{settings: object{"hotplug": true}})
	n.nad("net-b", n.bridged("net-b", 2))
	p := n.pod("p", nil)
	n.attach(p)
	n.selects(p, "net-b")
	n.said("InterfaceAddRejected", `the key "chrootDir" is not set`)
	if log := n.read("daemon.log"); !strings.Contains(log, `key \"hotplug\" has no effect`) {
		t.Errorf("the log does not say so:\n%s", log)
	}
	n.Same("interfaces", []string{"lo", "eth0"}, n.podLinks(p))
	q := n.pod("q", selecting(`[{"name":"gone","io.multus.optional":true}]`))
	if _, err := n.add(q); err == nil {
		t.Error("the pod started without a network that nobody will attach late")
	}
	n.detach(p)
	n.detach(q)
	n.clean()
}

// Without the key nothing changes, whatever the daemon may do.
func TestR14HotPlugIsOff(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/"}})
	n.nad("fake", n.fake("fake", nil))
	p := n.pod("p", nil)
	n.attach(p)
	n.selects(p, "fake")
	other := n.pod("other", selecting("fake")) // by its end the daemon has seen the change
	n.attach(other)
	n.metric(`multus_hotplug_operations_total{operation="attach",outcome="ok"} 0`)
	n.Same("calls", []string{"ADD fake"}, n.began())
	n.detach(p)
	n.detach(other)
	n.clean()
}

// A thousand operations leave nothing: no descriptor, no goroutine, no record, no lease.
func TestI5_AThousandHotPlugs(t *testing.T) {
	const networks, rounds = 25, 20 // each attaches and detaches them all
	n := hotplugging(t)
	n.nad("lan", n.bridged("lan", 2))
	all := []string{"lan@h0"}
	for i := 1; i < networks; i++ {
		name := fmt.Sprintf("light-%d", i)
		n.nad(name, object{"cniVersion": "1.0.0", "name": name, "type": "fake"})
		all = append(all, fmt.Sprintf("%s@h%d", name, i))
	}
	p := n.pod("p", nil)
	n.attach(p)
	whole := func(want int) {
		n.Helper()
		n.eventually(func() error {
			if got := len(n.rawStatus(p)); got != want {
				return fmt.Errorf("the status has %d entries, want %d", got, want)
			}
			return nil
		})
	}
	round := func() {
		n.selects(p, strings.Join(all, ","))
		whole(1 + networks)
		n.selects(p, "")
		whole(1)
	}
	round() // everything is there once
	idle := func() (fds, goroutines int) {
		text, err := n.fetch(api.PathMetrics)
		n.Must(err)
		return gauge(t, text, "process_open_fds"), gauge(t, text, "go_goroutines")
	}
	fds, goroutines := idle()
	begin := time.Now()
	for range rounds {
		round()
	}
	t.Logf("%d operations in %v", 2*networks*rounds, time.Since(begin).Round(time.Millisecond))
	n.metric(fmt.Sprintf(`multus_hotplug_operations_total{operation="attach",outcome="ok"} %d`, networks*(rounds+1)))
	n.metric(fmt.Sprintf(`multus_hotplug_operations_total{operation="detach",outcome="ok"} %d`, networks*(rounds+1)))
	n.eventually(func() error {
		nowFDs, nowGoroutines := idle()
		if nowFDs > fds+2 || nowGoroutines > goroutines+4 {
			return fmt.Errorf("%d descriptors and %d goroutines, there were %d and %d", nowFDs, nowGoroutines, fds, goroutines)
		}
		return nil
	})
	rec, err := n.record(p)
	n.Must(err)
	n.Same("recorded", 1, len(rec.Plan.Attachments))
	n.Same("leases", 1, len(n.leases()))
	n.Same("libcni's results", 1, len(n.entries("state/results")))
	n.detach(p)
	n.clean()
}

// gauge is a metric without labels.
func gauge(t *testing.T, metrics, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(metrics)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}
