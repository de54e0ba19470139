package shim

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestR6PrimaryFileOrSnapshot is the table of what stands for the primary network of a
// plain pod, when the daemon is away.
func TestR6PrimaryFileOrSnapshot(t *testing.T) {
	const lost, nothing = "the primary network's configuration cannot be read", "names no primary network"
	for name, c := range map[string]struct {
		host     object   // beside primaryFile; the file holds the network "primary"
		snapshot string   // its network; "" for none
		folder   string   // "same", "moved" or "rebooted"
		gone     bool     // the file is
		noFile   bool     // is named
		want     []string // what ran
		fails    string   // with code 11
	}{
		"trusted":                       {host: object{"trusted": true}, snapshot: "old", want: []string{"ADD primary"}},
		"trusted, no snapshot":          {host: object{"trusted": true}, want: []string{"ADD primary"}},
		"trusted, gone":                 {host: object{"trusted": true}, snapshot: "old", gone: true, fails: lost},
		"the same folder":               {folder: "same", snapshot: "old", want: []string{"ADD primary"}},
		"the same folder, gone":         {folder: "same", snapshot: "old", gone: true, fails: lost},
		"another folder, same network":  {folder: "moved", snapshot: "primary", want: []string{"ADD primary"}},
		"another folder, other network": {folder: "moved", snapshot: "old", want: []string{"ADD old"}},
		"another folder, gone":          {folder: "moved", snapshot: "old", gone: true, want: []string{"ADD old"}},
		"another folder, no snapshot":   {folder: "moved", fails: nothing},
		"the folder of another boot":    {folder: "rebooted", snapshot: "old", want: []string{"ADD old"}},
		"no folder, same network":       {snapshot: "primary", want: []string{"ADD primary"}},
		"no folder, other network":      {snapshot: "old", want: []string{"ADD old"}},
		"no folder, gone":               {snapshot: "old", gone: true, want: []string{"ADD old"}},
		"no folder, gone, no snapshot":  {gone: true, fails: nothing},
		"no file, a snapshot":           {noFile: true, snapshot: "old", want: []string{"ADD old"}},
		"no file, trusted, a snapshot":  {noFile: true, host: object{"trusted": true}, snapshot: "old", want: []string{"ADD old"}},
		"no file, no snapshot":          {noFile: true, fails: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			host := object{"primaryFile": r.path("net.d/10-primary.conf")}
			for key, value := range c.host {
				host[key] = value
			}
			if c.noFile {
				delete(host, "primaryFile")
			}
			if c.snapshot != "" {
				host["snapshot"] = r.network(c.snapshot, nil)
			}
			if c.folder != "" {
				place, err := ledger.PlaceOf(r.path("net.d"), "boot")
				r.Must(err)
				switch c.folder {
				case "moved":
					place.Inode++
				case "rebooted":
					place.BootID = "earlier"
				}
				place.Path = "/in/the/daemon"
				host["folder"] = place
			}
			if c.gone {
				r.Must(os.Remove(r.path("net.d/10-primary.conf")))
			}
			_, err := r.add(object{"host": host})
			if c.fails != "" {
				r.Fails(err, types.ErrTryAgainLater, c.fails)
			} else {
				r.Must(err)
			}
			r.Same("calls", c.want, r.ran())
		})
	}
}

// TestR6BrokenPrimaryFile: a certain file that is half-written is waited for.
func TestR6BrokenPrimaryFile(t *testing.T) {
	r := newRig(t)
	r.write("net.d/10-primary.conf", `{"cniVersion":"1.0.0","na`)
	_, err := r.add(nil)
	r.Fails(err, types.ErrTryAgainLater, r.path("net.d/10-primary.conf"))
	r.Same("calls", []string(nil), r.ran())
}

// TestR3OlderGeneratedConfiguration says nothing of the host: its own keys count.
func TestR3OlderGeneratedConfiguration(t *testing.T) {
	r := newRig(t)
	for name, changes := range map[string]object{
		"a path":    {"clusterNetwork": r.path("net.d/10-primary.conf")},
		"delegates": {"clusterNetwork": nil, "delegates": []any{r.network("primary", nil)}},
	} {
		changes["host"] = nil
		if _, err := r.add(changes); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.Must(r.plugin.Del(t.Context(), r.call(changes)))
		r.Same(name, []string{"ADD primary", "DEL primary"}, r.ran())
	}
	_, err := r.add(object{"host": nil})
	r.Fails(err, types.ErrTryAgainLater, "/in/the/daemon/10-primary.conf cannot be read: it does not exist")
}

// TestR1AuxiliaryChain: its folder is beside the primary network's file. Where the host
// knows that file only by its snapshot, no pod goes without the chain.
func TestR1AuxiliaryChain(t *testing.T) {
	r := newRig(t)
	r.Must(os.Symlink(r.path("bin/"+delegate), r.path("bin/passthru")))
	r.writeConf("net.d/aux/10-tuning.conf", r.network("tuning", nil))
	chained := object{"auxiliaryCNIChainName": "aux", "binDir": r.path("bin")}
	op := r.operation(chained)
	p, err := op.planAlone(t.Context(), map[string]string{})
	r.Must(err)
	var names []string
	for _, a := range p.Attachments {
		names = append(names, string(a.Role)+" "+a.Network+" "+a.Interface)
	}
	r.Same("the plan", []string{"primary primary eth0", "auxiliary aux net1"}, names)

	r.stdin["host"] = object{"primaryFile": r.path("elsewhere/10-primary.conf"), "snapshot": r.network("primary", nil)}
	_, err = r.add(chained)
	r.Fails(err, types.ErrTryAgainLater, "the folder of the auxiliary chain aux is known to the Multus daemon alone")
	r.Same("calls", []string(nil), r.ran())
	_, err = r.add(nil) // without a chain the snapshot is enough
	r.Must(err)
	// A primary network that is no file has no folder beside it, and no chain.
	r.stdin["host"] = object{"snapshot": r.network("primary", nil)}
	r.Must(r.plugin.Del(t.Context(), r.call(nil)))
	_, err = r.add(chained)
	r.Must(err)
}

// operation is one invocation under way.
func (r *rig) operation(changes object) *operation {
	r.Helper()
	op, closeAll, err := r.plugin.start(r.call(changes))
	r.Must(err)
	r.Cleanup(closeAll)
	return op
}

// TestI2_ReportedStatus reads back what a report carries.
func TestI2_ReportedStatus(t *testing.T) {
	a := net1("app/lan")
	a.Status = append(a.Status, json.RawMessage(`{"name":"app/lan","interface":"net1.1","ips":["fd00::2","10.9.0.2"]}`), json.RawMessage(`nonsense`))
	r := &rig{T: check.T{T: t}}
	var names []string
	for _, e := range Entries(api.Report{Attachments: []api.Attachment{eth0("primary"), {}, a}}) {
		names = append(names, e.Name+" "+e.Interface)
	}
	r.Same("entries", []string{"primary eth0", "app/lan net1", "app/lan net1.1"}, names)
}

// TestC1_3SearchPath: binDir goes before the runtime's folders.
func TestC1_3SearchPath(t *testing.T) {
	r := &rig{T: check.T{T: t}}
	for given, want := range map[string][]string{
		"":             {"/own"},
		"/opt/cni/bin": {"/own", "/opt/cni/bin"},
		"/a::/own:/b":  {"/own", "/a", "/b"},
	} {
		r.Same(given, want, searchPath("/own", given))
	}
}

func TestC1_3AnnotationsAsDelivered(t *testing.T) {
	r := &rig{T: check.T{T: t}}
	for text, want := range map[string]map[string]string{
		`null`: nil, `"x"`: nil, `[]`: nil, `{"a":1}`: nil, `{}`: {}, `{"a":"b"}`: {"a": "b"},
	} {
		r.Same(text, want, Annotations(map[string]json.RawMessage{config.PodAnnotationsCapability: json.RawMessage(text)}))
	}
	r.Same("no key", map[string]string(nil), Annotations(map[string]json.RawMessage{"mac": cniconf.Quote("x")}))
}
