package nodestate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/config"
)

// diagnose looks an hour after the records were made, and gives a line for each finding.
func (r *rig) diagnose() string {
	r.Helper()
	findings := Diagnose(r.Context(), Read(r.Context(), r.paths), created.Add(time.Hour))
	var lines []string
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Level, f.Check, f.Found))
		if (f.Level == Wrong) != (f.Symptom != "" && f.Fix != "") {
			r.Errorf("%q has the symptom %q and the fix %q", f.Check, f.Symptom, f.Fix)
		}
	}
	if Healthy(findings) != !strings.Contains("\n"+strings.Join(lines, "\n"), "\nwrong ") {
		r.Error("Healthy says otherwise than the findings")
	}
	return r.hide(strings.Join(lines, "\n") + "\n")
}

func (r *rig) hide(text string) string {
	return strings.ReplaceAll(text, filepath.Dir(r.paths.CNIDir), "DIR")
}

// healthy is a thick node that is well.
func healthy(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.conf("00-multus.conf", r.thick("10-a.conflist"))
	r.conf("10-a.conflist", bridge)
	r.plugins(v5, "multus-shim", "bridge", "host-local", "portmap")
	r.record("c1", "web", attach.Attached, r.paths.ConfDir, "lan")
	return r
}

const well = `ok runtime's configuration: the runtime takes 00-multus.conf, which is Multus's
ok primary network: cluster (DIR/net.d/10-a.conflist): named by multusMasterCNI
ok its plugins: bridge, host-local, portmap in DIR/bin
ok our plugin: DIR/bin/multus-shim is ` + v5 + `
ok daemon: ready; 0 ADDs in flight, 0 waiting
note kubeconfig: only the thin plugin has one
ok records' folder: DIR/records is the daemon's too, 1 records
ok locks: DIR/records can be locked
ok damaged records: none
ok unfinished records: none
ok records of pods that are gone: none
ok records of Multus v4: none
`

func (r *rig) told() api.State {
	return api.State{Version: v5, Ledger: r.place(), Primary: api.StatePrimary{Why: "named by multusMasterCNI"}}
}

func TestI4_DoctorWell(t *testing.T) {
	r := healthy(t)
	r.serve(r.told())
	if diff := cmp.Diff(well, r.diagnose()); diff != "" {
		t.Error(diff)
	}
}

// TestI4_DoctorBeforeAnInstallation: nothing is wrong with a node that has no Multus.
func TestI4_DoctorBeforeAnInstallation(t *testing.T) {
	r := newRig(t)
	r.conf("10-a.conflist", bridge)
	r.plugins("", "bridge", "host-local", "portmap")
	want := `note runtime's configuration: there is no Multus on this node yet; the runtime takes 10-a.conflist
ok primary network: cluster (DIR/net.d/10-a.conflist): the first valid configuration by name in DIR/net.d
ok its plugins: bridge, host-local, portmap in DIR/bin
note our plugin: not installed yet
note daemon: not installed yet
note kubeconfig: only the thin plugin has one
note records' folder: DIR/records, 0 records
ok locks: DIR/records can be locked
ok damaged records: none
ok unfinished records: none
ok records of pods that are gone: none
ok records of Multus v4: none
`
	if diff := cmp.Diff(want, r.diagnose()); diff != "" {
		t.Error(diff)
	}
}

// TestI4_DoctorFinds: each trouble of a node that is well otherwise, and nothing else.
func TestI4_DoctorFinds(t *testing.T) {
	const away = "DIR/run/multus.sock: connect: no such file or directory"
	tests := map[string]struct {
		trouble func(r *rig, told *api.State) *api.State // nil: no daemon
		want    string                                   // the lines that differ
	}{
		"another file goes first": {
			func(r *rig, told *api.State) *api.State { r.conf("00-cilium.conflist", bridge); return told },
			"wrong runtime's configuration: 00-cilium.conflist sorts before 00-multus.conf, so the runtime takes that\n",
		},
		"renamed by another program": {
			func(r *rig, told *api.State) *api.State {
				os.Rename(r.paths.ConfDir+"/00-multus.conf", r.paths.ConfDir+"/00-multus.conf.cilium_bak")
				return told
			},
			"wrong runtime's configuration: there is no 00-multus.conf in DIR/net.d; the runtime takes 10-a.conflist\n",
		},
		"another program's, under our name": {
			func(r *rig, told *api.State) *api.State {
				r.conf("00-multus.conf", `{"cniVersion":"1.0.0","name":"x","type":"bridge"}`)
				return told
			},
			"wrong runtime's configuration: 00-multus.conf in DIR/net.d has the name of Multus's file, but does not run Multus\n",
		},
		"no such folder": {
			func(r *rig, told *api.State) *api.State { r.paths.ConfDir += "/absent"; return told },
			"wrong runtime's configuration: open DIR/net.d/absent: no such file or directory\n" +
				"unknown primary network: the runtime's folder cannot be read\n" +
				"unknown its plugins: no configuration of the primary network to be read here\n",
		},
		"the primary network is broken": {
			func(r *rig, told *api.State) *api.State { r.conf("10-a.conflist", "{"); return told },
			"wrong primary network: DIR/net.d/10-a.conflist: is not valid JSON at byte 1: unexpected end of JSON input\n" +
				"unknown its plugins: no configuration of the primary network to be read here\n",
		},
		"a plugin is missing": {
			func(r *rig, told *api.State) *api.State { os.Remove(r.paths.BinDir + "/host-local"); return told },
			"wrong its plugins: no host-local in DIR/bin\n",
		},
		"our plugin is missing": {
			func(r *rig, told *api.State) *api.State { os.Remove(r.paths.BinDir + "/multus-shim"); return told },
			"wrong our plugin: there is no DIR/bin/multus-shim\n",
		},
		"our plugin is of another version": {
			func(r *rig, told *api.State) *api.State { told.Version = "version:v6"; return told },
			"wrong our plugin: DIR/bin/multus-shim is " + v5 + ", the daemon version:v6\n",
		},
		"our plugin is something else": {
			func(r *rig, told *api.State) *api.State {
				r.write(r.paths.BinDir+"/multus-shim", "#!/bin/sh\necho hello\n", 0o755)
				return told
			},
			"wrong our plugin: DIR/bin/multus-shim --version does not answer as a plugin of Multus does\n",
		},
		"no daemon": {
			func(r *rig, _ *api.State) *api.State { return nil },
			"ok primary network: cluster (DIR/net.d/10-a.conflist): the generated configuration names it\n" +
				"wrong daemon: nobody answers on " + away + "\n" +
				"note records' folder: DIR/records, 1 records\n",
		},
		"the daemon is not ready": {
			func(r *rig, told *api.State) *api.State { told.NotReady = "pods: forbidden"; return told },
			"wrong daemon: it is not ready: pods: forbidden\n",
		},
		"the daemon sees another folder": {
			func(r *rig, told *api.State) *api.State {
				told.Ledger.Inode++
				told.Ledger.Path = "/var/lib/cni/multus"
				return told
			},
			"wrong records' folder: the plugin's DIR/records is not the folder that the daemon sees at /var/lib/cni/multus\n",
		},
		"a damaged record": {
			func(r *rig, told *api.State) *api.State { r.write(r.paths.CNIDir+"/c9", "x", 0o600); return told },
			"ok records' folder: DIR/records is the daemon's too, 2 records\n" +
				"wrong damaged records: sandbox c9\n",
		},
		"damaged records are kept": {
			func(r *rig, told *api.State) *api.State {
				os.Mkdir(r.paths.CNIDir+"/.damaged", 0o700)
				r.write(r.paths.CNIDir+"/.damaged/c9.1", "x", 0o600)
				return told
			},
			"note damaged records: 1 were set aside in DIR/records/.damaged: remove them once leases and pods agree\n",
		},
		"unfinished, and its namespace is gone": {
			func(r *rig, told *api.State) *api.State {
				r.record("c123456789abcdef", "db", attach.Detaching, "/absent/cni-2")
				r.record("c3", "new", attach.Intent, "/absent/cni-3") // just begun
				os.Chtimes(r.paths.CNIDir+"/c3", time.Time{}, created.Add(59*time.Minute))
				return told
			},
			"ok records' folder: DIR/records is the daemon's too, 3 records\n" +
				"wrong unfinished records: default/db (sandbox c123456789abc)\n" +
				"wrong records of pods that are gone: the network namespace is gone: default/db (sandbox c123456789abc)\n",
		},
		"many of Multus v4": {
			func(r *rig, told *api.State) *api.State {
				for i := range 7 {
					r.write(fmt.Sprintf("%s/v%d", r.paths.CNIDir, i), `[{"Name":"cluster","Bytes":"`+base64.StdEncoding.EncodeToString([]byte(bridge))+`"}]`, 0o600)
				}
				return told
			},
			"ok records' folder: DIR/records is the daemon's too, 8 records\n" +
				"note records of Multus v4: sandbox v0, sandbox v1, sandbox v2, sandbox v3, sandbox v4 and 2 more: their deletion gives back what v4 attached\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := healthy(t)
			told := r.told()
			if state := tt.trouble(r, &told); state != nil {
				r.serve(*state)
			}
			var differs strings.Builder
			for line := range strings.Lines(r.diagnose()) {
				if !strings.Contains(well, line) {
					differs.WriteString(line)
				}
			}
			if diff := cmp.Diff(tt.want, differs.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestI4_DoctorKubeconfig: the thin plugin's credential, whatever form it has.
func TestI4_DoctorKubeconfig(t *testing.T) {
	now := created.Add(time.Hour)
	token := func(claims string) string {
		return "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y"
	}
	users := func(user string) string {
		return "apiVersion: v1\nkind: Config\nusers:\n- name: multus\n  user: {" + user + "}\n"
	}
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	tests := map[string]struct{ file, want string }{
		"absent":        {"", "wrong open PATH: no such file or directory"},
		"no user":       {"kind: Config\n", "wrong PATH is no kubeconfig with a user"},
		"no YAML":       {"{", "wrong PATH is no kubeconfig with a user"},
		"opaque":        {users(`token: abc`), "ok PATH"},
		"good":          {users("token: " + token(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Minute).Unix()))), "ok PATH is good until " + at(time.Minute)},
		"expired":       {users("token: " + token(fmt.Sprintf(`{"exp":%d}`, now.Unix()))), "wrong PATH expired at " + at(0)},
		"without end":   {users("token: " + token(`{}`)), "ok PATH"},
		"no token file": {users("tokenFile: /absent/token"), "wrong PATH: open /absent/token: no such file or directory"},
		"certificate":   {users("client-certificate-data: " + certificate(t, now.Add(-time.Second))), "wrong PATH expired at " + at(-time.Second)},
		"no PEM":        {users("client-certificate-data: YQ=="), "wrong PATH: the client certificate is not PEM"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "multus.kubeconfig")
			if tt.file != "" {
				if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			e := examination{State: State{Config: Config{Plugin: "multus", parsed: &config.Config{Kubeconfig: path}}}, now: now}
			f := e.kubeconfig(t.Context())
			if got := strings.ReplaceAll(string(f.Level)+" "+f.Found, path, "PATH"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// certificate is a client certificate's PEM in base64.
func certificate(t *testing.T, end time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
