package nodestate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

var values = cmp.Options{cmpopts.IgnoreUnexported(Config{}, Primary{})}

func TestI4_ReadConfig(t *testing.T) {
	r := newRig(t)
	dir := r.paths.ConfDir
	snapshot := `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/x","host":{"snapshot":` + bridge + `}}`
	inline := `{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{"type":"multus","delegates":[` + bridge + `]}]}`
	tests := map[string]struct {
		files map[string]string
		want  Config
	}{
		"before an installation": {
			map[string]string{"05-broken.conflist": "{", "10-a.conflist": bridge},
			Config{Taken: "10-a.conflist", Primary: Primary{File: dir + "/10-a.conflist", Network: "cluster", Why: "the first valid configuration by name in " + dir}},
		},
		"nothing": {
			map[string]string{"05-broken.conflist": "{}"},
			Config{Primary: Primary{Error: "no valid network configuration in " + dir + `; 05-broken.conflist has no key "type"`}},
		},
		"thick": {
			map[string]string{"00-multus.conf": r.thick("10-a.conflist"), "10-a.conflist": bridge},
			Config{Taken: "00-multus.conf", Generated: "00-multus.conf", Plugin: "multus-shim", Primary: Primary{File: dir + "/10-a.conflist", Network: "cluster", Why: "the generated configuration names it"}},
		},
		"its primary network's file is gone": {
			map[string]string{"00-multus.conf": r.thick("10-a.conflist"), "11-b.conflist": bridge},
			Config{Taken: "00-multus.conf", Generated: "00-multus.conf", Plugin: "multus-shim", Primary: Primary{File: dir + "/10-a.conflist", Error: "there is no such file"}},
		},
		"a snapshot, behind another file": {
			map[string]string{"00-multus.conf": snapshot, "00-a.conflist": bridge},
			Config{Taken: "00-a.conflist", Generated: "00-multus.conf", Plugin: "multus-shim", Primary: Primary{Network: "cluster", Why: "the generated configuration holds it"}},
		},
		"thin, a list": {
			map[string]string{"00-multus.conflist": inline},
			Config{Taken: "00-multus.conflist", Generated: "00-multus.conflist", Plugin: "multus", Primary: Primary{Network: "cluster", Why: "the generated configuration holds it"}},
		},
		"both of our names": {
			map[string]string{"00-multus.conf": snapshot, "00-multus.conflist": inline},
			Config{Taken: "00-multus.conf", Generated: "00-multus.conf", Plugin: "multus-shim", Primary: Primary{Network: "cluster", Why: "the generated configuration holds it"}},
		},
		"another program's, under our name": {
			map[string]string{"00-multus.conf": `{"cniVersion":"1.0.0","name":"x","type":"bridge"}`, "10-a.conflist": bridge},
			Config{Taken: "00-multus.conf", NotOurs: "00-multus.conf", Primary: Primary{File: dir + "/10-a.conflist", Network: "cluster", Why: "the first valid configuration by name in " + dir}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for file, content := range tt.files {
				r.conf(file, content)
				defer os.Remove(filepath.Join(dir, file))
			}
			if diff := cmp.Diff(tt.want, ReadConfig(r.paths), values); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestI4_Read(t *testing.T) {
	r := newRig(t)
	r.conf("00-multus.conf", r.thick("10-a.conflist"))
	r.conf("10-a.conflist", bridge)
	told := api.State{Version: v5, Primary: api.StatePrimary{File: "/host/x/10-a.conflist", Network: "cluster", Why: "named by multusMasterCNI"}, InFlight: 2, Waiting: 1, Ledger: r.place()}
	r.serve(told)
	r.record("c2", "web", attach.Attached, r.paths.ConfDir, "lan")
	r.record("c1", "db", attach.Detaching, "/absent/cni-1")
	r.write(r.paths.CNIDir+"/c3", `[]`, 0o600)
	r.write(r.paths.CNIDir+"/c4", `[{"Name":"cluster","Bytes":"eyJuYW1lIjoiY2x1c3RlciIsInR5cGUiOiJicmlkZ2UifQ=="}]`, 0o600) // v4's
	for _, id := range []string{"c3", "c4"} {
		if err := os.Chtimes(r.paths.CNIDir+"/"+id, created, created); err != nil {
			t.Fatal(err)
		}
	}
	got := Read(t.Context(), r.paths)
	same := func(at time.Time) time.Time { return at.In(time.UTC) }
	for i := range got.Records {
		got.Records[i].Changed, got.Records[i].Created = same(got.Records[i].Changed), same(got.Records[i].Created)
	}
	primary := Attachment{Network: "cluster", Interface: "eth0", Role: plan.Primary, Config: "cluster", Plugins: []string{"bridge", "tuning"}, Addresses: []string{"10.0.0.5/24"}}
	want := State{
		Version: got.Version, Paths: r.paths,
		Config: Config{Taken: "00-multus.conf", Generated: "00-multus.conf", Plugin: "multus-shim", Primary: Primary{File: r.paths.ConfDir + "/10-a.conflist", Network: "cluster", Why: "named by multusMasterCNI"}},
		Daemon: Daemon{Socket: r.paths.SocketDir + "/multus.sock", State: &told},
		Records: []Record{
			{Sandbox: "c3", Damaged: "the record of the sandbox is damaged: " + r.paths.CNIDir + "/c3 is an empty list", Changed: created},
			{Sandbox: "c4", State: attach.Attached, Origin: attach.FromV4, Created: created, Changed: created, Attachments: []Attachment{{Network: "cluster", Role: plan.Primary, Config: "cluster", Plugins: []string{"bridge"}}}},
			{Sandbox: "c1", Pod: plan.Pod{Namespace: "default", Name: "db", UID: "u"}, State: attach.Detaching, NetNS: "/absent/cni-1", Gone: true, Created: created, Changed: created, Attachments: []Attachment{primary}},
			{
				Sandbox: "c2", Pod: plan.Pod{Namespace: "default", Name: "web", UID: "u"}, State: attach.Attached, NetNS: r.paths.ConfDir, Created: created, Changed: created,
				Attachments: []Attachment{primary, {Network: "default/lan", Interface: "net1", Role: plan.Secondary, Config: "lan", Plugins: []string{"bridge", "tuning"}}},
			},
		},
	}
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"web", "default/web"} {
		of, err := got.Of(name)
		if err != nil || len(of.Records) != 1 || of.Records[0].Sandbox != "c2" {
			t.Errorf("the records of %s are %v, %v", name, of.Records, err)
		}
	}
	if _, err := got.Of("absent"); err == nil || err.Error() != "no record of a pod absent on this node" {
		t.Errorf("a pod that is not there gives %v", err)
	}
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Errorf("Of changed the state: %s", diff)
	}
	attached, unfinished, damaged := got.Summary()
	if diff := cmp.Diff([]int{2, 1, 1}, []int{attached, unfinished, damaged}); diff != "" {
		t.Error(diff)
	}
}

// TestI4_FoldersBelowHost: in a container what is mounted below /host is the host's.
func TestI4_FoldersBelowHost(t *testing.T) {
	mount := t.TempDir()
	want := Paths{ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", CNIDir: "/given", SocketDir: "/run/multus"}
	if diff := cmp.Diff(want, Paths{CNIDir: "/given"}.Find(mount)); diff != "" {
		t.Errorf("on the host: %s", diff)
	}
	for _, dir := range []string{"/etc/cni/net.d", "/run/multus"} {
		if err := os.MkdirAll(mount+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want = Paths{Root: mount, ConfDir: mount + "/etc/cni/net.d", BinDir: "/opt/cni/bin", CNIDir: "/given", SocketDir: mount + "/run/multus"}
	got := Paths{CNIDir: "/given"}.Find(mount)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in a container: %s", diff)
	}
}
