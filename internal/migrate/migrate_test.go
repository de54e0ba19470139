package migrate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/entrypoint"
)

// report reads a DaemonSet whose main container has these arguments, or a daemon's file.
func report(t *testing.T, args []string, file string) Installation {
	t.Helper()
	command := "/entrypoint.sh"
	if file != "" {
		command = "/usr/src/multus-cni/bin/multus-daemon"
	}
	set := object{
		"kind": "DaemonSet", "metadata": object{"name": "kube-multus-ds", "namespace": "kube-system"},
		"spec": object{"selector": object{"matchLabels": object{"name": "multus"}}, "template": object{"spec": object{
			"tolerations": []object{{"operator": "Exists"}},
			"containers": []object{{
				"name": "c", "image": "registry.example.com/multus-cni:v4.3.0", "command": []string{command}, "args": args,
				"volumeMounts": []object{{"name": "config", "mountPath": "/etc/cni/net.d/multus.d"}, {"name": "cni", "mountPath": "/host/etc/cni/net.d"}, {"name": "records", "mountPath": "/var/lib/cni/multus"}, {"name": "data", "mountPath": "/data"}},
			}},
			"volumes": []object{
				{"name": "config", "configMap": object{"name": "c"}},
				{"name": "cni", "hostPath": object{"path": "/etc/cni/net.d"}},
				{"name": "records", "hostPath": object{"path": "/var/lib/cni/multus"}},
				{"name": "data", "hostPath": object{"path": "/srv/data"}},
			},
		}}},
	}
	var objects Objects
	for _, o := range []object{set, {"kind": "ConfigMap", "metadata": object{"name": "c", "namespace": "kube-system"}, "data": object{"daemon-config.json": file}}} {
		text, err := json.Marshal(o)
		if err == nil {
			err = objects.Add("f", text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := objects.Report(Options{Image: "i", Repository: "r"})
	if err != nil {
		t.Fatal(err)
	}
	return r.Installations[0]
}

// base is what a daemon's file has without any key of the user's.
const base = `"cniConfigDir":"/host/etc/cni/net.d","multusAutoconfigDir":"/host/etc/cni/net.d","multusConfigFile":"auto","socketDir":"/host/run/multus/"`

// outcome is the difference that one flag or key makes: the keys beyond base, the folders
// that are mounted for it, and the remarks that there are only because of it.
func outcome(with, without Installation) string {
	var all []string
	was, is := without.Becomes.DaemonConfig, with.Becomes.DaemonConfig
	for _, key := range is.Keys() {
		old, _ := was.Get(key)
		if value, _ := is.Get(key); string(old) != string(value) {
			all = append(all, key+"="+string(value))
		}
	}
	for _, f := range with.Becomes.Files {
		if f.Name == "daemonset.yaml" {
			for line := range strings.Lines(f.Content) {
				if _, at, ok := strings.Cut(line, "mountPath: "); ok {
					all = append(all, "mount "+strings.TrimSpace(at))
				}
			}
		}
	}
	for kind, lists := range map[string][2][]Remark{"changes": {with.Changes, without.Changes}, "lost": {with.NotCarried, without.NotCarried}} {
		for _, r := range lists[0] {
			if !slices.Contains(lists[1], r) {
				all = append(all, kind+": "+r.What)
			}
		}
	}
	return strings.Join(all, "; ")
}

// TestI4_MeaningOfEachFlag: each flag of the thin entrypoint, alone.
func TestI4_MeaningOfEachFlag(t *testing.T) {
	want := map[string]string{
		"--cni-conf-dir=/host/etc/cni/net.d":            "",
		"--cni-version=0.4.0":                           `cniVersion="0.4.0"`,
		"--multus-conf-file=/tmp/70-multus.conf":        "lost: multusConfigFile /tmp/70-multus.conf",
		"--multus-cni-conf-dir=/data/named":             `confDir="/host/srv/data/named"; mount /host/srv/data/named`,
		"--multus-master-cni-file-name=10-aws.conflist": `hostCniConfigDir="/etc/cni/net.d"; multusMasterCNI="10-aws.conflist"; changes: the pinned primary network is waited for`,
		"--namespace-isolation":                         "namespaceIsolation=true",
		"--global-namespaces=a,b":                       `globalNamespaces="a,b"`,
		"--isolate-default-network":                     "isolateDefaultNetwork=true",
		"--allowed-namespaces=a,b":                      `allowedNamespaces=["a","b"]`,
		"--allowed-plugins=bridge":                      `allowedPlugins=["bridge"]`,
		"--multus-log-format=json":                      `logFormat="json"`,
		"--multus-autoconfig-dir=/data":                 `multusAutoconfigDir="/host/srv/data"; mount /host/srv/data`,
		"--multus-log-to-stderr=false":                  "logToStderr=false",
		"--multus-log-level=debug":                      `logLevel="debug"`,
		"--multus-log-file=/data/m.log":                 `logFile="/data/m.log"; mount /data`,
		"--override-network-name":                       "overrideNetworkName=true",
		"--cleanup-config-on-exit":                      "cleanupConfigOnExit=true",
		"--readiness-indicator-file=/etc/cni/net.d/x":   `readinessindicatorfile="/host/etc/cni/net.d/x"`,
		"--additional-bin-dir=/more":                    `binDir="/more"`,
		"--force-cni-version":                           "lost: key forceCNIVersion",
		"--cni-bin-dir=/data":                           `binDir="/srv/data"; changes: flag --cni-bin-dir goes`,
		"--multus-bin-file=/b":                          "changes: flag --multus-bin-file goes",
		"--skip-multus-binary-copy":                     "changes: flag --skip-multus-binary-copy goes",
		"--multus-kubeconfig-file-host=/k":              "changes: flag --multus-kubeconfig-file-host goes",
		"--skip-config-watch":                           "changes: flag --skip-config-watch goes",
		"--rename-conf-file":                            "changes: flag --rename-conf-file goes",
		"--skip-tls-verify":                             "changes: flag --skip-tls-verify goes",
		"--restart-crio":                                "changes: flag --restart-crio goes",
		"--unknown=1":                                   "lost: argument --unknown=1",
		"--namespace-isolation=often":                   "lost: argument --namespace-isolation=often",
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	entrypoint.NewFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		for flag := range want {
			if name, _, _ := strings.Cut(flag, "="); name == "--"+f.Name {
				return
			}
		}
		t.Errorf("--%s is not tried", f.Name)
	})
	without := report(t, nil, "")
	got := map[string]string{}
	for flag := range want {
		got[flag] = outcome(report(t, []string{flag}, ""), without)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// unlike are the keys of a thick installation that are not taken as they are, and what
// becomes of them; as they are is the rule.
var unlike = map[string]struct{ value, want string }{
	"name":                   {`"n"`, ""}, // v4 ignores it too
	"metricsTLS":             {`{"certFile":"/p","keyFile":"/q"}`, `metricsTLS={"certFile":"/p","keyFile":"/q"}`},
	"type":                   {`"multus-shim"`, ""},
	"runtimeConfig":          {`{}`, ""},
	"prevResult":             {`{}`, ""},
	"host":                   {`{}`, ""},
	"cniConfigDir":           {`"/host/etc/cni/net.d"`, ""},
	"hostCniConfigDir":       {`"/etc/cni/net.d"`, ""},
	"multusConfigFile":       {`"/tmp/x"`, "lost: multusConfigFile /tmp/x"},
	"confDir":                {`"/data"`, `confDir="/host/srv/data"; mount /host/srv/data`},
	"cniDir":                 {`"/data"`, `cniDir="/srv/data"; mount /srv/data`},
	"logFile":                {`"/data/log"`, `logFile="/srv/data/log"; mount /srv/data`},
	"multusAutoconfigDir":    {`"/data"`, `multusAutoconfigDir="/host/srv/data"; mount /host/srv/data`},
	"readinessindicatorfile": {`"/data/ready"`, `readinessindicatorfile="/host/srv/data/ready"; mount /host/srv/data`},
	"chrootDir":              {`"/hostroot"`, "changes: key chrootDir goes"},
	"socketDir":              {`"/data"`, "changes: key socketDir: the socket moves to /run/multus"},
	"daemonSocketDir":        {`"/srv"`, "changes: key daemonSocketDir: the socket moves to /run/multus"},
	"kubeconfig":             {`"/k"`, `lost: key kubeconfig "/k"`},
	"perNodeCertificate":     {`{"enabled":false}`, "lost: key perNodeCertificate"},
	"allowTryDeleteOnErr":    {`true`, "lost: key allowTryDeleteOnErr"},
	"cniConf":                {`"/x"`, "lost: key cniConf"},
	"clusterNetwork":         {`"/host/etc/cni/net.d/10-a.conflist"`, `multusMasterCNI="10-a.conflist"; changes: key clusterNetwork becomes multusMasterCNI 10-a.conflist`},
	"delegates":              {`[{"type":"a","name":"A b"}]`, `clusterNetwork="a-b"; changes: delegates become definitions: a-b`},
}

// plain are values of the keys that are taken as they are, by the words for what they expect.
var plain = map[string]string{
	"a text": `"t"`, "a path": `"/p"`, "true or false": "true", "an object of true and false": `{"ips":true}`, "an object": `{}`,
	"a list of names": `["a"]`, "names in a text, with commas between, or a list of names": `"a,b"`, "the name of a level": `"debug"`,
	"a list of names of environment variables": `["A"]`, "a whole number above zero": "3", "a number from 0 to 65535": "9091",
	"a file name without a path": `"10-a.conflist"`, `one of "warn", "error"`: `"error"`, `one of "async", "required"`: `"required"`,
	"a list of names that is not empty": `["a"]`, `one of "text", "json"`: `"json"`,
	`one of "clean", "dry-run", "off"`: `"off"`, `one of "report", "attach", "restart"`: `"attach"`, `one of "report", "repair"`: `"repair"`,
	`a duration above zero such as "30s", or a number of seconds`: `"5s"`, "anything": `{"x":1}`,
}

// TestI4_MeaningOfEachKey: each key of a thick installation, alone: nothing gets lost
// without a word.
func TestI4_MeaningOfEachKey(t *testing.T) {
	without := report(t, nil, `{}`)
	for _, k := range config.Keys() {
		if strings.Contains(k.Name, ".") && !strings.HasPrefix(k.Name, "cni.dev") {
			continue // a part of its object
		}
		value, want := plain[k.Type], k.Name+"="+plain[k.Type]
		extra := ""
		if other, is := unlike[k.Name]; is {
			value, want = other.value, other.want
		}
		if k.Name == "forceCNIVersion" { // not without this one
			extra = `,"cniVersion":"1.0.0"`
			want += `; cniVersion="1.0.0"`
		}
		got := outcome(report(t, nil, `{"`+strings.ToUpper(k.Name)+`":`+value+extra+`}`), without)
		if got != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", k.Name, value, got, want)
		}
	}
}

// TestI4_OverlaysAreKnown: for each overlay the keys are those of its own file, but that
// what was not pinned stays so.
func TestI4_OverlaysAreKnown(t *testing.T) {
	entries, err := os.ReadDir("../../deploy/overlays")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]distribution{}
	for _, d := range distributions() {
		known[d.name] = d
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "eks-") {
			continue // eks, with another image
		}
		d, is := known[e.Name()]
		if !is {
			t.Errorf("overlay %s is not known", e.Name())
			continue
		}
		delete(known, e.Name())
		raw, err := os.ReadFile(filepath.Join("../../deploy/overlays", e.Name(), "daemon-config.json"))
		if os.IsNotExist(err) {
			raw, err = os.ReadFile("../../deploy/thick/daemon-config.json")
		}
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]any{}, map[string]any{}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		tg := target{source: &source{distribution: d, conf: d.conf, bin: d.bin}, kind: Thick}
		tg.keys()
		if d.primary != "" {
			tg.write("multusMasterCNI", d.primary)
		}
		if err := json.Unmarshal(tg.config.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", e.Name(), diff)
		}
		tg.kubelet, tg.patch = d.kubelet, object{}
		if patch := tg.daemonSet(); patch != nil {
			t.Errorf("%s is patched: %v", e.Name(), patch)
		}
		if d.bin != usualBin { // its volumes are what the table says
			text, err := os.ReadFile(filepath.Join("../../deploy/overlays", e.Name(), "daemonset.yaml"))
			if err != nil || !strings.Contains(string(text), "{path: "+d.bin+"}") || d.conf != usualConf && !strings.Contains(string(text), "{path: "+d.conf+"}") {
				t.Errorf("%s: %v: the folders are others", e.Name(), err)
			}
		}
	}
	if len(known) > 0 {
		t.Errorf("there are no overlays %v", known)
	}
}

// TestI4_VersionIsTheDeployed: the image that is named is the one of deploy/thick.
func TestI4_VersionIsTheDeployed(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/thick/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct{ Images []struct{ NewTag string } }
	if err := yaml.Unmarshal(raw, &k); err != nil || len(k.Images) != 1 || k.Images[0].NewTag != ourVersion+"-thick" {
		t.Errorf("deploy/thick names %v, %v", k.Images, err)
	}
}

func TestI4_DistributionByItsMarks(t *testing.T) {
	for want, c := range map[string]clues{
		"k3s":       {conf: "/var/lib/rancher/k3s/agent/etc/cni/net.d", bin: "/var/lib/rancher/k3s/data/current/bin", primary: "10-flannel.conflist"},
		"microk8s":  {conf: "/var/snap/microk8s/current/args/cni-network"},
		"openshift": {conf: "/etc/kubernetes/cni/net.d"},
		"gke":       {conf: usualConf, bin: "/home/kubernetes/bin"},
		"eks":       {conf: usualConf, bin: usualBin, primary: "10-aws.conflist"},
		"rke2":      {conf: usualConf, bin: usualBin, image: "rancher/hardened-multus-cni:v4.3.0", primary: "05-cilium.conflist"},
		"talos":     {conf: usualConf, bin: usualBin, netns: "/var/run/netns", primary: "10-flannel.conflist"},
		"cilium":    {conf: usualConf, bin: usualBin, primary: "05-cilium.conflist"},
		"flannel":   {conf: usualConf, bin: usualBin, primary: "10-flannel.conflist"},
		"calico":    {conf: usualConf, bin: usualBin, primary: "10-calico.conflist"},
		"kubeadm":   {conf: usualConf, bin: "/srv/bin", primary: "10-canal.conflist"},
	} {
		if got, because := guess(c); got.name != want || because == "" {
			t.Errorf("%+v is %s because %s, want %s", c, got.name, because, want)
		}
	}
}

func TestI4_VersionInATag(t *testing.T) {
	got := map[string]string{}
	for _, image := range []string{
		"multus:v3.4", "r:5000/multus-cni", "r:5000/m/multus-cni:v4.1.4-eksbuild.3_thick", "m:4.0.2-thick", "m:stable", "m:snapshot-thick",
		"m@sha256:00", "m:v4.3.0-build20260819",
	} {
		got[image] = fmt.Sprint(versionOf(image), " ", loose(image))
	}
	want := map[string]string{
		"multus:v3.4": "v3.4 false", "r:5000/multus-cni": " true", "r:5000/m/multus-cni:v4.1.4-eksbuild.3_thick": "v4.1.4 false", "m:4.0.2-thick": "v4.0.2 false",
		"m:stable": " true", "m:snapshot-thick": " true", "m@sha256:00": " false", "m:v4.3.0-build20260819": "v4.3.0 false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestI4_WhatIsMultus: by image or by what it runs, and not by a name that has it in it.
func TestI4_WhatIsMultus(t *testing.T) {
	pod := func(container string) string {
		return `{"kind":"DaemonSet","metadata":{"name":"d"},"spec":{"template":{"spec":{"containers":[` + container + `]}}}}`
	}
	for text, want := range map[string]string{
		pod(`{"name":"c","image":"x/multus:v3"}`):                                                                                                      "thin",
		pod(`{"name":"c","image":"x/bitnami-multus-cni:4.0.0"}`):                                                                                       "thin",
		pod(`{"name":"c","image":"x/multus-cni:v4.3.0-thick"}`):                                                                                        "thick",
		pod(`{"name":"c","image":"x@sha256:0","command":["/b/multus-daemon"]}`):                                                                        "thick",
		pod(`{"name":"c","image":"x","command":["sh","-c","a && exec /b/multus-daemon; wait"]}`):                                                       "thick",
		pod(`{"name":"c","image":"x","args":["--multus-conf-file=auto"]}`):                                                                             "thin",
		pod(`{"name":"k","image":"x/multus-cni:v4","command":["/kubeconfig_generator"]},{"name":"c","image":"x/multus-cni:v4.2.0"}`):                   "thin",
		pod(`{"name":"c","image":"x/multus-admission-controller:v1"}`):                                                                                 ErrNone.Error(),
		pod(`{"name":"c","image":"x/multus-dynamic-networks-controller:v1","args":["-config=/etc/cni/net.d/multus.d/d.json"]}`):                        ErrNone.Error(),
		`{"kind":"HelmChartConfig","metadata":{"name":"rke2-multus"},"spec":{"valuesContent":"thickPlugin: {enabled: true}\nconfig: {cni_conf: {}}"}}`: "thick",
		pod(`{"name":"c","image":"x/multus-cni:v4.3.0-thick","command":["/usr/src/multus-cni/bin/thin_entrypoint"]}`):                                  "thin",
		`[1]`: ErrNone.Error(),
	} {
		var o Objects
		if err := o.Add("f", []byte(text)); err != nil {
			t.Fatal(err)
		}
		r, err := o.Report(Options{Image: "i"})
		got := fmt.Sprint(err)
		if err == nil {
			got = string(r.Installations[0].Found.Kind)
		}
		if got != want {
			t.Errorf("%s\nis %s, want %s", text, got, want)
		}
	}
}

// TestI4_WrongInputIsNamed: one line that says where.
func TestI4_WrongInputIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"a: b: c": "f: document 1: yaml: mapping values are not allowed in this context",
		`{"kind":"DaemonSet","metadata":{"name":"d"},"spec":1}`: "f: document 1: DaemonSet d: json: cannot unmarshal number into Go struct field DaemonSet.spec of type v1.DaemonSetSpec",
	} {
		var o Objects
		if err := o.Add("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestI4_WaysOfTakingOver: what of the old DaemonSet makes the way another.
func TestI4_WaysOfTakingOver(t *testing.T) {
	var o Objects
	set := `{"kind":"DaemonSet","metadata":{"namespace":"kube-system","name":"kube-multus-ds"%s},"spec":{"selector":{"matchLabels":{%s"name":"multus"}},"template":{"spec":{"containers":[{"name":"c","image":"x/multus:v3.9.2"}]}}}}`
	for _, s := range [][2]string{
		{"", ""},
		{"", `"app":"x",`},
		{`,"uid":"u"`, ""},
		{`,"uid":"u","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}`, ""},
		{`,"labels":{"app.kubernetes.io/managed-by":"Helm"}`, ""},
	} {
		if err := o.Add("f", fmt.Appendf(nil, set, s[0], s[1])); err != nil {
			t.Fatal(err)
		}
	}
	r, err := o.Report(Options{Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range r.Installations {
		steps := i.Becomes.Steps
		got = append(got, steps[len(steps)-2].Step+" | "+steps[len(steps)-2].Commands[0]+" | "+steps[len(steps)-1].Commands[0])
	}
	const take = "ake our manifest: in the folder of the new files | "
	want := []string{
		"T" + take + "kubectl apply -k . | kubectl replace -f before.yaml",
		"Delete the old DaemonSet, because its selector is another, which cannot be changed, and t" + take + "kubectl -n kube-system delete daemonset kube-multus-ds | kubectl delete -k .",
		"Delete the old DaemonSet, because kubectl apply did not make it, so leftovers of it would stay, and t" + take + "kubectl -n kube-system delete daemonset kube-multus-ds | kubectl delete -k .",
		"T" + take + "kubectl apply -k . | kubectl replace -f before.yaml",
		"Delete the old DaemonSet, because Helm manages it, and t" + take + "helm -n kube-system uninstall RELEASE | kubectl delete -k .",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestI4_BaseIsWhatTheManifestNeeds for the daemon's file of an installation without keys.
func TestI4_BaseIsWhatTheManifestNeeds(t *testing.T) {
	got := report(t, nil, `{}`).Becomes.DaemonConfig
	want, err := cniconf.ParseObject([]byte("{" + base + `,"logLevel":"verbose"}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want.Bytes()), string(got.Bytes())); diff != "" {
		t.Error(diff)
	}
}
