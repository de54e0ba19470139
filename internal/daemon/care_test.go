package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// careRig is a daemon with an old node: the host's root is in its folder, delegates and
// namespaces are fake, the ledger is real. Its Run does not run.
type careRig struct {
	*running
	*caretaker
	host *fakehost.Host
	crew fakeRuntime
}

// fakeRuntime knows sandboxes by the pod's UID.
type fakeRuntime map[string]attach.Sandbox

func (r fakeRuntime) Sandboxes(context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for _, sb := range r {
		ids[sb.ContainerID] = true
	}
	return ids, nil
}

var errNoSandbox = errors.New("no running sandbox")

func (r fakeRuntime) Sandbox(_ context.Context, uid string) (attach.Sandbox, error) {
	if sb, ok := r[uid]; ok {
		return sb, nil
	}
	return attach.Sandbox{}, errNoSandbox
}

// careFor makes a daemon that may act on the host, or may not.
func careFor(t *testing.T, acts bool, keys map[string]any) *careRig {
	t.Helper()
	r := prepare(t, keys)
	r.d.Config.ChrootDir = r.path("host")
	r.Must(os.MkdirAll(r.path("host/run/netns"), 0o755))
	r.Must(os.MkdirAll(r.path("state/results"), 0o755))
	c := &careRig{running: r, caretaker: &caretaker{Daemon: r.d}, host: fakehost.New(), crew: fakeRuntime{}}
	if acts {
		p := c.host.Process()
		c.engine = &attach.Engine{Runner: p, Links: p, Ledger: r.d.ledger, Log: slog.New(slog.DiscardHandler)}
		c.runtime = c.crew
	}
	return c
}

// namespace makes a sandbox's namespace, to be seen at both hosts.
func (r *careRig) namespace(id string) string {
	r.Helper()
	path := "/run/netns/" + id
	r.write("host"+path, "")
	r.host.AddNetNS(path)
	return path
}

func (r *careRig) dropNamespace(id string) {
	r.Helper()
	r.Must(os.Remove(r.path("host/run/netns/" + id)))
	r.host.RemoveNetNS("/run/netns/" + id)
}

const aResult = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"address":"10.0.0.7/24","interface":0}]}`

// record puts a record of ours, an hour old, into the ledger.
func (r *careRig) record(id, pod string) {
	r.Helper()
	c, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"lan","type":"fake"}`))
	r.Must(err)
	r.Must(r.running.d.ledger.Save(attach.Record{
		State: attach.Attached, Created: time.Now().Add(-time.Hour), Sandbox: attach.Sandbox{ContainerID: id, NetNS: "/run/netns/" + id},
		Plan: plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "app", Name: pod, UID: "u-" + pod}, Attachments: []plan.Attachment{
			{Role: plan.Primary, Network: "lan", Interface: "eth0", Config: c},
		}},
		Outcomes: []attach.Outcome{{Result: json.RawMessage(aResult)}},
	}, false))
}

// result puts a result of libcni's, an hour old, into its cache.
func (r *careRig) result(id, pod string) {
	r.Helper()
	raw, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "lan", "netns": "/run/netns/" + id,
		"config": []byte(`{"cniVersion":"1.0.0","name":"lan","type":"fake"}`), "result": json.RawMessage(aResult),
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", "u-" + pod}},
	})
	r.Must(err)
	r.old("state/results/lan-"+id+"-eth0", string(raw))
}

// scratch puts a file of Multus v4's, an hour old, into the ledger.
func (r *careRig) scratch(id string) {
	r.old("state/"+id, `[{"Name":"lan","Bytes":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibGFuIiwidHlwZSI6ImZha2UifQ=="}]`)
}

func (r *careRig) old(name, content string) {
	r.Helper()
	r.write(name, content)
	hour := time.Now().Add(-time.Hour)
	r.Must(os.Chtimes(r.path(name), hour, hour))
}

// left are the files of the ledger.
func (r *careRig) left() (names []string) {
	r.Helper()
	r.Must(filepath.WalkDir(r.path("state"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, "/.lock/") {
			names = append(names, strings.TrimPrefix(path, r.path("state")+"/"))
		}
		return err
	}))
	slices.Sort(names)
	return names
}

// node is an old node: of each kind one of a pod that lives, one of a pod whose namespace
// lives, and one that nobody owns.
func (r *careRig) node() {
	r.put("alive", "u-alive", "lan")
	for _, kind := range []string{"rec", "v4", "res"} {
		for _, pod := range []string{"alive", "there", "gone"} {
			id := kind + "-" + pod
			switch kind {
			case "rec":
				r.record(id, pod)
				r.result(id, pod)
			case "v4":
				r.scratch(id)
				r.result(id, pod)
			case "res":
				r.result(id, pod)
			}
			if pod == "there" {
				r.namespace(id)
			}
		}
	}
	r.scratch("v4-silent") // killed before its first plugin had ended, so that nothing tells its namespace
}

func TestR15OrphansAreCollected(t *testing.T) {
	r := careFor(t, true, nil)
	r.node()
	before := r.left()
	o := &orphans{caretaker: r.caretaker}
	r.Must(o.look(t.Context()))
	r.Same("what is left", slices.DeleteFunc(before, func(name string) bool {
		return strings.Contains(name, "gone")
	}), r.left())
	deleted := strings.Split(strings.TrimSpace(r.host.Delegates()), "\n")
	slices.Sort(deleted)
	r.Same("delegates", []string{"DEL lan rec-gone/eth0", "DEL lan res-gone/eth0", "DEL lan v4-gone/eth0"}, deleted)
	text := func(id string) string {
		return "OrphanedNetworks of app/gone: The pod is gone, and its sandbox " + id + " has left behind what it had of lan: it has been given back"
	}
	told := r.heard()
	slices.Sort(told)
	r.Same("events", []string{text("rec-gone"), text("res-gone"), text("v4-gone")}, told)
	r.metricsSay(`multus_orphans{kind="record"} 0`, `multus_orphans_collected_total{outcome="ok"} 3`)
	r.Must(o.look(t.Context())) // nothing more
	r.Same("delegates", "", r.host.Delegates())
}

// metricsSay demands lines of the scrape.
func (r *careRig) metricsSay(lines ...string) {
	r.Helper()
	text := "\n" + r.scrape()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			r.Errorf("the metrics do not say %s", line)
		}
	}
}

func TestI5_OrphansThatCannotBeGivenBack(t *testing.T) {
	r := careFor(t, true, nil)
	r.record("rec-gone", "gone")
	r.result("res-gone", "gone")
	r.host.On("DEL lan", fakehost.Fail(errors.New("address store down")))
	o := &orphans{caretaker: r.caretaker}
	r.Must(o.look(t.Context()))
	r.metricsSay(`multus_orphans{kind="record"} 1`, `multus_orphans{kind="result"} 1`, `multus_orphans_collected_total{outcome="failed"} 2`)
	r.host.On("DEL lan", nil)
	r.Must(o.look(t.Context()))
	r.metricsSay(`multus_orphans{kind="record"} 0`, `multus_orphans{kind="result"} 0`, `multus_orphans_collected_total{outcome="ok"} 2`)
	r.Same("what is left", []string(nil), r.left())
}

// A daemon that may not act names the orphans to the plugin, which takes them one by one.
func TestR16OrphansAreNamedToThePlugin(t *testing.T) {
	for _, c := range []struct {
		policy string
		named  []string
	}{
		{"clean", []string{"rec-gone", "results/lan-res-gone-eth0", "v4-gone"}},
		{"dry-run", nil},
		{"off", nil},
	} {
		t.Run(c.policy, func(t *testing.T) {
			r := careFor(t, false, map[string]any{"orphans": c.policy})
			r.node()
			before := r.left()
			r.write(api.OrphansName, "of an earlier daemon\n")
			o := &orphans{caretaker: r.caretaker}
			if c.policy == "off" {
				o.run(t.Context())
			} else {
				r.Must(o.look(t.Context()))
				r.metricsSay(`multus_orphans{kind="record"} 1`, `multus_orphans{kind="v4"} 1`, `multus_orphans{kind="result"} 1`)
			}
			r.Same("what is left", before, r.left())
			text, err := os.ReadFile(r.path(api.OrphansName))
			named := strings.Fields(string(text))
			slices.Sort(named)
			r.Same("named", fmt.Sprint(c.named), fmt.Sprint(named))
			if c.named == nil {
				r.Same("the file", true, errors.Is(err, os.ErrNotExist))
				return
			}
			p := r.host.Process()
			plugin := &attach.Engine{Runner: p, Links: p, Ledger: r.running.d.ledger, Log: slog.New(slog.DiscardHandler)}
			for _, name := range named {
				_, err := plugin.CollectNamed(t.Context(), name)
				r.Must(err)
			}
			r.Must(o.look(t.Context()))
			_, err = os.Stat(r.path(api.OrphansName))
			r.Same("nothing is named any more", true, errors.Is(err, os.ErrNotExist))
			r.metricsSay(`multus_orphans_collected_total{outcome="ok"} 3`)
		})
	}
}

// A dry run counts each once, and touches none, though the daemon could.
func TestI5_OrphansInADryRun(t *testing.T) {
	r := careFor(t, true, map[string]any{"orphans": "dry-run"})
	r.node()
	before := r.left()
	r.Must((&orphans{caretaker: r.caretaker}).look(t.Context()))
	r.Same("what is left", before, r.left())
	r.metricsSay(`multus_orphans{kind="record"} 1`, `multus_orphans{kind="v4"} 1`, `multus_orphans{kind="result"} 1`)
}

// What cannot be asked is not known: nothing is touched.
func TestR15OrphansWithoutTheAPI(t *testing.T) {
	r := careFor(t, true, nil)
	r.node()
	before := r.left()
	r.set(func(c *fakeCluster) { c.problem = "pods not read" })
	if err := (&orphans{caretaker: r.caretaker}).look(t.Context()); err == nil {
		t.Error("no error")
	}
	r.Same("what is left", before, r.left())
}

// life lets a pod run with an address.
func (r *careRig) life(pod string, phase audit.Phase, ip string, controlled bool) {
	r.set(func(c *fakeCluster) {
		c.lives["app/"+pod] = audit.Life{Phase: phase, IPs: []netip.Addr{netip.MustParseAddr(ip)}, Controlled: controlled}
	})
}

// claim is the status that the record's sandbox had.
func (r *careRig) claim(pod string) {
	r.set(func(c *fakeCluster) {
		c.pods["app/"+pod].Annotations[netspec.AnnotationStatus] = `[{"name":"cluster","interface":"eth0","ips":["10.0.0.7"],"default":true,"dns":{}},{"name":"app/lan","interface":"net1","ips":["10.1.0.7"],"dns":{}}]`
	})
}
