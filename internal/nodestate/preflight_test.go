package nodestate

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
)

// preflight gives a line for each finding.
func (r *rig) preflight() string {
	r.Helper()
	var lines []string
	for _, f := range Preflight(r.Context(), Read(r.Context(), r.paths), created.Add(time.Hour)) {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Level, f.Check, f.Found))
		if (f.Level == Wrong) != (f.Symptom != "" && f.Fix != "") {
			r.Errorf("%q has the symptom %q and the fix %q", f.Check, f.Symptom, f.Fix)
		}
	}
	return r.hide(strings.Join(lines, "\n") + "\n")
}

// v4Pod leaves what v4 wrote of a pod with a primary and one further network: its record, and
// as many of libcni's results; and the runtime's own result.
func (r *rig) v4Pod(id string, results int) {
	r.Helper()
	conf := func(name string) string {
		return base64.StdEncoding.EncodeToString([]byte(`{"cniVersion":"1.0.0","name":"` + name + `","type":"bridge"}`))
	}
	r.write(filepath.Join(r.paths.CNIDir, id), `[{"Name":"cluster","Bytes":"`+conf("cluster")+`"},{"Name":"default/lan","Bytes":"`+conf("lan")+`"}]`, 0o600)
	if err := os.MkdirAll(filepath.Join(r.paths.CNIDir, "results"), 0o700); err != nil {
		r.Fatal(err)
	}
	for _, file := range []string{"cluster-" + id + "-eth0", "lan-" + id + "-net1"}[:results] {
		r.write(filepath.Join(r.paths.CNIDir, "results", file), "{}", 0o600)
	}
}

// runtimeResult is an entry of the runtime's own cache.
func (r *rig) runtimeResult(id, conf string) {
	r.Helper()
	dir := filepath.Join(filepath.Dir(r.paths.CNIDir), "results")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.Fatal(err)
	}
	text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":%q,"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","web"]]}`, id, base64.StdEncoding.EncodeToString([]byte(conf)))
	r.write(filepath.Join(dir, "net-"+id+"-eth0"), text, 0o600)
}

const (
	thinConf = `{"cniVersion":"0.4.0","name":"multus-cni-network","type":"multus","kubeconfig":"KUBECONFIG","delegates":[` + bridge + `]}`
	shimConf = `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-a.conflist"}`
)

func TestI4_PreflightOnAFreshNode(t *testing.T) {
	r := newRig(t)
	r.conf("10-a.conflist", bridge)
	r.plugins("", "bridge", "host-local", "portmap")
	want := `note old configuration: none of Multus's name; the runtime takes 10-a.conflist
ok other configurations: none that runs Multus, and none that goes before 00-multus.conf
ok primary network: cluster (DIR/net.d/10-a.conflist): the first valid configuration by name in DIR/net.d
ok primary network's name: as its owner gave it
ok its plugins: bridge, host-local, portmap in DIR/bin
note old plugins: none in DIR/bin
note old daemon: none answers on DIR/run/multus.sock
note kubeconfig: only the thin plugin has one
ok owners: root's
note records' folder: DIR/records, 0 records
ok locks: DIR/records can be locked
ok damaged records: none
ok records of pods that are gone: none
ok records of Multus v4: none
ok results of Multus v4: none
unknown pods without a record: the runtime's cache DIR/results is not to be seen
`
	if diff := cmp.Diff(want, r.preflight()); diff != "" {
		t.Error(diff)
	}
}

func TestI4_PreflightAfterThin(t *testing.T) {
	r := newRig(t)
	dir := r.paths.ConfDir
	kubeconfig := dir + "/multus.d/multus.kubeconfig"
	r.conf("00-multus.conf", strings.Replace(thinConf, "KUBECONFIG", kubeconfig, 1))
	r.conf("70-multus.conf", thinConf)
	r.conf("10-a.conflist", bridge)
	if err := os.Mkdir(filepath.Dir(kubeconfig), 0o700); err != nil {
		t.Fatal(err)
	}
	r.write(kubeconfig, "users:\n- user: {token: opaque}\n", 0o600)
	r.plugins("version:v4.0.2(clean,released), commit:1, date:2023-06-01", "multus", "bridge", "host-local", "portmap")
	r.plugins("", "passthru")
	r.v4Pod("a1", 2)
	r.v4Pod("a2", 1)
	r.runtimeResult("a1", thinConf)
	want := `ok old configuration: 00-multus.conf runs multus, and is replaced
note other configurations: 70-multus.conf runs Multus too; it is never taken for the primary network. Remove it when nobody goes back any more
ok primary network: cluster: the generated configuration holds it
ok primary network's name: as its owner gave it
ok its plugins: bridge, host-local, portmap in DIR/bin
note old plugins: multus (version:v4.0.2(clean,released), commit:1, date:2023-06-01), passthru (of a version that it does not tell) in DIR/bin: the thick installation replaces multus-shim and passthru, and leaves multus
note old daemon: none answers on DIR/run/multus.sock
ok kubeconfig: DIR/net.d/multus.d/multus.kubeconfig
ok owners: root's
note records' folder: DIR/records, 2 records
ok locks: DIR/records can be locked
ok damaged records: none
ok records of pods that are gone: none
note records of Multus v4: sandbox a1, sandbox a2: their deletion gives back what v4 attached
note results of Multus v4: 1 of 2 sandboxes have fewer results than networks: they are deleted with the configuration in v4's record
ok pods without a record: none
`
	if diff := cmp.Diff(want, r.preflight()); diff != "" {
		t.Error(diff)
	}
}

// old is a daemon of v4: it answers, and knows nothing of our paths.
func (r *rig) old() {
	r.Helper()
	listener, err := net.Listen("unix", filepath.Join(r.paths.SocketDir, api.SocketName))
	if err != nil {
		r.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
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

func TestI4_PreflightWhatIsInTheWay(t *testing.T) {
	r := newRig(t)
	r.old()
	r.conf("00-multus.conf", shimConf)
	r.conf("00-meshnet.conflist", bridge)
	r.conf("10-a.conflist.old", bridge)
	r.plugins("", "bridge")
	r.v4Pod("a1", 2)
	r.runtimeResult("a1", shimConf)
	r.runtimeResult("b2", shimConf)
	r.runtimeResult("c3", bridge) // before Multus
	r.record("c1", "web", attach.Attached, "/absent/cni-1")
	if err := os.Chown(r.paths.BinDir, 1000, 0); err != nil {
		t.Fatal(err)
	}
	want := `ok old configuration: 00-multus.conf runs multus-shim, and is replaced
wrong other configurations: 00-meshnet.conflist sorts before 00-multus.conf
wrong primary network: /host/etc/cni/net.d/10-a.conflist: there is no such file
wrong primary network's name: the thin entrypoint's --rename-conf-file has renamed it
unknown its plugins: no configuration of the primary network to be read here
note old plugins: none in DIR/bin
ok old daemon: one of Multus v4 answers on DIR/run/multus.sock
note kubeconfig: only the thin plugin has one
wrong owners: not root's to write: DIR/bin (user 1000, -rwx------)
note records' folder: DIR/records, 2 records
ok locks: DIR/records can be locked
ok damaged records: none
wrong records of pods that are gone: the network namespace is gone: default/web (sandbox c1)
note records of Multus v4: sandbox a1: their deletion gives back what v4 attached
ok results of Multus v4: all of 1 sandboxes
wrong pods without a record: sandbox b2 of default/web
`
	if diff := cmp.Diff(want, r.preflight()); diff != "" {
		t.Error(diff)
	}
	r.conf("00-multus.conf", bridge)
	const line = "wrong old configuration: 00-multus.conf in DIR/net.d has the name of Multus's file, but does not run Multus\n"
	if got := r.preflight(); !strings.HasPrefix(got, line) {
		t.Errorf("the first line is not %s\n%s", line, got)
	}
}

func TestI4_PreflightWithoutTheFolder(t *testing.T) {
	r := newRig(t)
	if err := os.Remove(r.paths.ConfDir); err != nil {
		t.Fatal(err)
	}
	r.serve(r.told())
	got := r.preflight()
	for _, line := range []string{
		"wrong old configuration: open DIR/net.d: no such file or directory",
		"unknown other configurations: the runtime's folder cannot be read",
		"ok old daemon: one of this Multus answers: " + v5,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%s\nis not in\n%s", line, got)
		}
	}
}
