package nodestate

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/plan"
)

const (
	bridge = `{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	v5     = "version:v5.0.0(clean,released), commit:9f8e, date:2026-12-02"
)

// rig is a node in a folder.
type rig struct {
	*testing.T
	paths Paths
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t, Paths{ConfDir: dir + "/net.d", BinDir: dir + "/bin", CNIDir: dir + "/records", SocketDir: dir + "/run"}}
	for _, d := range []string{r.paths.ConfDir, r.paths.BinDir, r.paths.CNIDir, r.paths.SocketDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) write(path, content string, mode os.FileMode) {
	r.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) conf(name, content string) {
	r.write(filepath.Join(r.paths.ConfDir, name), content, 0o600)
}

// plugins installs programs: each tells a version.
func (r *rig) plugins(version string, names ...string) {
	for _, name := range names {
		r.write(filepath.Join(r.paths.BinDir, name), "#!/bin/sh\necho '"+name+": "+version+"'\n", 0o755)
	}
}

// thick is the generated configuration of a node whose primary network is in a file.
func (r *rig) thick(file string) string {
	return `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/x/` + file + `","host":{"primaryFile":"` + r.paths.ConfDir + "/" + file + `","trusted":true}}`
}

// serve is a daemon that tells of itself.
func (r *rig) serve(state api.State) {
	r.Helper()
	listener, err := net.Listen("unix", filepath.Join(r.paths.SocketDir, api.SocketName))
	if err != nil {
		r.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(api.PathState, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, state) })
	mux.HandleFunc(api.PathMetrics, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("multus_ready 1\n")) })
	mux.HandleFunc(api.PathReadyz, func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	r.Cleanup(func() {
		server.Close()
		<-done
	})
}

// place is the records' folder, as a daemon tells of it.
func (r *rig) place() api.Place {
	r.Helper()
	place, err := ledger.PlaceOf(r.paths.CNIDir, "boot")
	if err != nil {
		r.Fatal(err)
	}
	return place
}

var created = time.Date(2026, 12, 2, 10, 0, 0, 0, time.UTC)

// record saves the record of a pod with a primary network and further ones.
func (r *rig) record(id, pod string, state attach.State, netns string, further ...string) {
	r.Helper()
	config := func(name string) cniconf.Config {
		c, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"` + name + `","plugins":[{"type":"bridge"},{"type":"tuning"}]}`))
		if err != nil {
			r.Fatal(err)
		}
		return c
	}
	rec := attach.Record{
		State: state, Created: created, Sandbox: attach.Sandbox{ContainerID: id, NetNS: netns},
		Plan: plan.Plan{
			Version: plan.Version, Pod: plan.Pod{Namespace: "default", Name: pod, UID: "u"},
			Attachments: []plan.Attachment{{Role: plan.Primary, Network: "cluster", Interface: "eth0", Config: config("cluster")}},
		},
		Outcomes: []attach.Outcome{{Result: json.RawMessage(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"address":"10.0.0.5/24","interface":0}]}`)}},
	}
	for i, network := range further {
		ifName := "net" + string(rune('1'+i))
		rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Role: plan.Secondary, Network: "default/" + network, Interface: ifName, Config: config(network)})
		rec.Outcomes = append(rec.Outcomes, attach.Outcome{})
	}
	if err := ledger.New(r.paths.CNIDir, "boot").Save(rec, false); err != nil {
		r.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(r.paths.CNIDir, id), created, created); err != nil {
		r.Fatal(err)
	}
}
