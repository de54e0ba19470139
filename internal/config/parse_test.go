package config

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
)

// preset is the configuration of an empty file, changed by with.
func preset(with func(*Config)) *Config {
	c := &Config{
		Name:    "multus-cni-network",
		ConfDir: "/etc/cni/multus/net.d", CNIDir: "/var/lib/cni/multus", BinDir: "/opt/cni/bin",
		GlobalNamespaces: []string{"default"}, SystemNamespaces: []string{"kube-system"}, MultusNamespace: "kube-system",
		CapabilityCheck: "warn", NetworkStatus: "async", LogFormat: "text",
		LogOptions:      LogOptions{MaxAge: 5, MaxSize: 100, MaxBackups: 5, Compress: true},
		DaemonSocketDir: "/run/multus/", SocketDir: "/run/multus/",
		DaemonTimeout: 30 * time.Second, AddTimeout: 90 * time.Second, DelTimeout: 45 * time.Second,
		DelegateTimeout: 3 * time.Minute, DrainTimeout: 8 * time.Second, Orphans: "clean", Strays: "report", CRISocketPath: "/run/containerd/containerd.sock", CheckPolicy: "report",
		AttachParallelism:  1,
		PerNodeCertificate: PerNodeCertificate{CertDuration: 10 * time.Minute},
		MultusConfigFile:   "auto", CNIConfigDir: "/etc/cni/net.d",
	}
	with(c)
	return c
}

func yes() *bool { b := true; return &b }

// goldens has every key: a value with what it sets, and values that are refused with
// the words for what was found.
var goldens = map[string]struct {
	value string
	sets  func(*Config)
	wrong map[string]string
}{
	"cniVersion":   {`"1.1.0"`, func(c *Config) { c.CNIVersion = "1.1.0" }, map[string]string{`1.1`: "the number 1.1"}},
	"name":         {`"n"`, func(c *Config) { c.Name = "n" }, map[string]string{`["n"]`: "a list"}},
	"type":         {`"multus"`, func(c *Config) { c.Type = "multus" }, map[string]string{`true`: "true"}},
	"capabilities": {`{"ips": true, "mac": false}`, func(c *Config) { c.Capabilities = map[string]bool{"ips": true, "mac": false} }, map[string]string{`{"ips": "true"}`: "an object", `["ips"]`: "a list"}},
	"runtimeConfig": {`{"x": {"n": 9007199254740993}, "y": null}`, func(c *Config) {
		c.RuntimeConfig = map[string]json.RawMessage{"x": json.RawMessage(`{"n": 9007199254740993}`), "y": json.RawMessage("null")}
	}, map[string]string{`"x"`: `the text "x"`}},
	"prevResult":                {`{"ips": []}`, func(c *Config) { c.PrevResult = json.RawMessage(`{"ips": []}`) }, map[string]string{`[]`: "a list", `1`: "the number 1"}},
	"ipam":                      {`{"type": "x"}`, nil, nil},
	"dns":                       {`{}`, nil, nil},
	"args":                      {`{"cni": {}}`, nil, nil},
	"ipMasq":                    {`true`, nil, nil},
	"disableCheck":              {`"true"`, nil, nil},
	"disableGC":                 {`true`, nil, nil},
	"loadOnlyInlinedPlugins":    {`true`, nil, nil},
	"cni.dev/valid-attachments": {`[]`, nil, nil},
	"cni.dev/attachments":       {`[]`, nil, nil},

	"confDir": {`"/x"`, func(c *Config) { c.ConfDir = "/x" }, map[string]string{`{}`: "an object"}},
	"cniDir":  {`"/x"`, func(c *Config) { c.CNIDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"binDir":  {`"/x"`, func(c *Config) { c.BinDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"delegates": {`[{"type": "a", "n": 1.0}, {}]`, func(c *Config) {
		c.Delegates = []json.RawMessage{json.RawMessage(`{"type": "a", "n": 1.0}`), json.RawMessage(`{}`)}
	}, map[string]string{`{"type": "a"}`: "an object", `["a"]`: "a list"}},
	"clusterNetwork":         {`"main"`, func(c *Config) { c.ClusterNetwork = "main" }, map[string]string{`["main"]`: "a list"}},
	"defaultNetworks":        {`["a", "b"]`, func(c *Config) { c.DefaultNetworks = []string{"a", "b"} }, map[string]string{`"a,b"`: `the text "a,b"`, `["a", ""]`: "a list", `[1]`: "a list"}},
	"kubeconfig":             {`"/x"`, func(c *Config) { c.Kubeconfig = "/x" }, map[string]string{`1`: "the number 1"}},
	"readinessindicatorfile": {`"/x"`, func(c *Config) { c.ReadinessIndicatorFile = "/x" }, map[string]string{`false`: "false"}},
	"namespaceIsolation":     {`true`, func(c *Config) { c.NamespaceIsolation = true }, map[string]string{`"true"`: `the text "true"`, `1`: "the number 1"}},
	"isolateDefaultNetwork":  {`true`, func(c *Config) { c.IsolateDefaultNetwork = true }, map[string]string{`"yes"`: `the text "yes"`}},
	"globalNamespaces":       {`" a, b,,"`, func(c *Config) { c.GlobalNamespaces = []string{"a", "b"} }, map[string]string{`true`: "true", `[""]`: "a list"}},
	"allowedPlugins":         {`["a", "b"]`, func(c *Config) { c.AllowedPlugins = []string{"a", "b"} }, map[string]string{`[]`: "a list", `["a", ""]`: "a list", `"a"`: `the text "a"`}},
	"allowedNamespaces":      {`["a"]`, func(c *Config) { c.AllowedNamespaces = []string{"a"} }, map[string]string{`[]`: "a list", `[1]`: "a list", `{}`: "an object"}},
	"systemNamespaces":       {`["a"]`, func(c *Config) { c.SystemNamespaces = []string{"a"} }, map[string]string{`"a"`: `the text "a"`}},
	"multusNamespace":        {`"a"`, func(c *Config) { c.MultusNamespace = "a" }, map[string]string{`1`: "the number 1"}},
	"retryDeleteOnError":     {`true`, func(c *Config) { c.RetryDeleteOnError = true }, map[string]string{`0`: "the number 0"}},
	"allowTryDeleteOnErr":    {`true`, nil, nil},
	"auxiliaryCNIChainName":  {`"aux"`, func(c *Config) { c.AuxiliaryCNIChainName = "aux" }, map[string]string{`1`: "the number 1"}},
	"capabilityCheck":        {`"error"`, func(c *Config) { c.CapabilityCheck = "error" }, map[string]string{`"deny"`: `the text "deny"`, `true`: "true"}},

	"logFile":               {`"/x"`, func(c *Config) { c.LogFile = "/x" }, map[string]string{`1`: "the number 1"}},
	"logLevel":              {`"Debug"`, func(c *Config) { c.LogLevel = "debug" }, map[string]string{`3`: "the number 3"}},
	"logFormat":             {`"JSON"`, func(c *Config) { c.LogFormat = "json" }, map[string]string{`"yaml"`: `the text "yaml"`, `1`: "the number 1"}},
	"logToStderr":           {`true`, func(c *Config) { c.LogToStderr = yes() }, map[string]string{`"true"`: `the text "true"`}},
	"logOptions":            {`{}`, nil, map[string]string{`"x"`: `the text "x"`, `[]`: "a list"}},
	"logOptions.maxAge":     {`0`, func(c *Config) { c.LogOptions.MaxAge = 0 }, map[string]string{`"5"`: `the text "5"`, `-1`: "the number -1"}},
	"logOptions.maxSize":    {`7`, func(c *Config) { c.LogOptions.MaxSize = 7 }, map[string]string{`1.5`: "the number 1.5"}},
	"logOptions.maxBackups": {`7`, func(c *Config) { c.LogOptions.MaxBackups = 7 }, map[string]string{`9999999999`: "the number 9999999999"}},
	"logOptions.compress":   {`false`, func(c *Config) { c.LogOptions.Compress = false }, map[string]string{`"false"`: `the text "false"`}},

	"daemonSocketDir":   {`"/x"`, func(c *Config) { c.DaemonSocketDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"daemonTimeout":     {`"5s"`, func(c *Config) { c.DaemonTimeout = 5 * time.Second }, map[string]string{`"5"`: `the text "5"`, `0`: "the number 0"}},
	"addTimeout":        {`1.5`, func(c *Config) { c.AddTimeout = 1500 * time.Millisecond }, map[string]string{`"-5s"`: `the text "-5s"`, `-5`: "the number -5"}},
	"delTimeout":        {`20`, func(c *Config) { c.DelTimeout = 20 * time.Second }, map[string]string{`1e30`: "the number 1e30", `true`: "true"}},
	"delegateTimeout":   {`"1h"`, func(c *Config) { c.DelegateTimeout = time.Hour }, map[string]string{`""`: `the text ""`, `[1]`: "a list"}},
	"attachParallelism": {`8`, func(c *Config) { c.AttachParallelism = 8 }, map[string]string{`0`: "the number 0", `"8"`: `the text "8"`}},
	"checkDelegates":    {`true`, func(c *Config) { c.CheckDelegates = true }, map[string]string{`{}`: "an object"}},
	"networkStatus":     {`"required"`, func(c *Config) { c.NetworkStatus = "required" }, map[string]string{`"sync"`: `the text "sync"`}},
	"delegateEnv":       {`["HTTPS_PROXY"]`, func(c *Config) { c.DelegateEnv = []string{"HTTPS_PROXY"} }, map[string]string{`["A=b"]`: "a list", `"A"`: `the text "A"`}},
	"claimStatus":       {`true`, func(c *Config) { c.ClaimStatus = true }, map[string]string{`"yes"`: `the text "yes"`}},
	"host": {`{"primaryFile": "/p", "trusted": true, "folder": {"path": "/f", "device": 1, "inode": 2, "bootID": "b"}, "snapshot": {"n": 1.0}, "indicatorFile": "/i"}`, func(c *Config) {
		c.Host = &HostView{
			PrimaryFile: "/p", Trusted: true, Folder: &api.Place{Path: "/f", Device: 1, Inode: 2, BootID: "b"},
			Snapshot: json.RawMessage(`{"n": 1.0}`), IndicatorFile: "/i",
		}
	}, map[string]string{`"x"`: `the text "x"`, `{"trusted": 1}`: "an object"}},

	"chrootDir":                              {`"/x"`, func(c *Config) { c.ChrootDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"socketDir":                              {`"/x"`, func(c *Config) { c.SocketDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"connectionLimit":                        {`5`, func(c *Config) { c.ConnectionLimit = 5 }, map[string]string{`0`: "the number 0", `-1`: "the number -1", `"5"`: `the text "5"`}},
	"metricsPort":                            {`9091`, func(c *Config) { c.MetricsPort = 9091 }, map[string]string{`"9091"`: `the text "9091"`, `65536`: "the number 65536"}},
	"metricsAddress":                         {`"::1"`, func(c *Config) { c.MetricsAddress = "::1" }, map[string]string{`1`: "the number 1"}},
	"metricsTLS":                             {`{}`, nil, map[string]string{`true`: "true"}},
	"metricsTLS.certFile":                    {`"/x"`, func(c *Config) { c.MetricsTLS.CertFile = "/x" }, map[string]string{`1`: "the number 1"}},
	"metricsTLS.keyFile":                     {`"/x"`, func(c *Config) { c.MetricsTLS.KeyFile = "/x" }, map[string]string{`1`: "the number 1"}},
	"metricsTokenReview":                     {`true`, func(c *Config) { c.MetricsTokenReview = true }, map[string]string{`"on"`: `the text "on"`}},
	"enablePprof":                            {`false`, nil, map[string]string{`"on"`: `the text "on"`}},
	"hotplug":                                {`true`, func(c *Config) { c.Hotplug = true }, map[string]string{`"on"`: `the text "on"`}},
	"drainTimeout":                           {`"2s"`, func(c *Config) { c.DrainTimeout = 2 * time.Second }, map[string]string{`"soon"`: `the text "soon"`}},
	"orphans":                                {`"Dry-Run"`, func(c *Config) { c.Orphans = "dry-run" }, map[string]string{`"no"`: `the text "no"`, `true`: "true"}},
	"strays":                                 {`"restart"`, func(c *Config) { c.Strays = "restart" }, map[string]string{`"kill"`: `the text "kill"`}},
	"criSocketPath":                          {`"/x"`, func(c *Config) { c.CRISocketPath = "/x" }, map[string]string{`1`: "the number 1"}},
	"checkInterval":                          {`"5m"`, func(c *Config) { c.CheckInterval = 5 * time.Minute }, map[string]string{`0`: "the number 0"}},
	"checkPolicy":                            {`"repair"`, func(c *Config) { c.CheckPolicy = "repair" }, map[string]string{`"fix"`: `the text "fix"`}},
	"perNodeCertificate":                     {`{}`, nil, map[string]string{`true`: "true"}},
	"perNodeCertificate.enabled":             {`false`, nil, map[string]string{`1`: "the number 1"}},
	"perNodeCertificate.bootstrapKubeconfig": {`"/x"`, func(c *Config) { c.PerNodeCertificate.BootstrapKubeconfig = "/x" }, map[string]string{`1`: "the number 1"}},
	"perNodeCertificate.certDir":             {`"/x"`, func(c *Config) { c.PerNodeCertificate.CertDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"perNodeCertificate.certDuration":        {`"24h"`, func(c *Config) { c.PerNodeCertificate.CertDuration = 24 * time.Hour }, map[string]string{`"1d"`: `the text "1d"`}},

	"multusConfigFile":    {`"/x"`, func(c *Config) { c.MultusConfigFile = "/x" }, map[string]string{`1`: "the number 1"}},
	"cniConfigDir":        {`"/x"`, func(c *Config) { c.CNIConfigDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"hostCniConfigDir":    {`"/x"`, func(c *Config) { c.HostCNIConfigDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"multusAutoconfigDir": {`"/x"`, func(c *Config) { c.MultusAutoconfigDir = "/x" }, map[string]string{`1`: "the number 1"}},
	"multusMasterCNI":     {`"10-main.conflist"`, func(c *Config) { c.MultusMasterCNI = "10-main.conflist" }, map[string]string{`"../x"`: `the text "../x"`, `"/a"`: `the text "/a"`, `".."`: `the text ".."`, `1`: "the number 1"}},
	"forceCNIVersion":     {`false`, nil, map[string]string{`"x"`: `the text "x"`}},
	"overrideNetworkName": {`true`, func(c *Config) { c.OverrideNetworkName = true }, map[string]string{`"x"`: `the text "x"`}},
	"cleanupConfigOnExit": {`true`, func(c *Config) { c.CleanupConfigOnExit = true }, map[string]string{`"x"`: `the text "x"`}},
	"cniConf":             {`"/x"`, nil, nil},
}

// file is a configuration that holds one key, also one inside an object.
func file(key, value string) []byte {
	if group, member, nested := strings.Cut(key, "."); nested && strings.ToLower(group) != "cni" {
		return []byte(`{"` + group + `": {"` + member + `": ` + value + `}}`)
	}
	return []byte(`{"` + key + `": ` + value + `}`)
}

func TestC1_3EveryKey(t *testing.T) {
	for _, k := range Keys() {
		golden, ok := goldens[k.Name]
		if !ok {
			t.Errorf("key %q has no golden", k.Name)
			continue
		}
		if k.Type == "" || len(k.Readers) == 0 || k.Meaning == "" {
			t.Errorf("key %q lacks words: %+v", k.Name, k)
		}
		t.Run(k.Name, func(t *testing.T) {
			var warned []Warning
			if k.Instead != "" {
				warned = []Warning{Warning(`key "` + k.Name + `" has no effect, "` + k.Instead + `" has`)}
			}
			if golden.sets == nil {
				golden.sets = func(*Config) {}
			}
			check := func(raw []byte, want *Config) {
				t.Helper()
				got, warnings, err := Parse(raw)
				if err != nil {
					t.Fatalf("%s: %v", raw, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", raw, diff)
				}
				if diff := cmp.Diff(warned, warnings); diff != "" {
					t.Errorf("%s: %s", raw, diff)
				}
			}
			check(file(k.Name, golden.value), preset(golden.sets))
			check(file(strings.ToUpper(k.Name), golden.value), preset(golden.sets))
			warned = nil
			check(file(k.Name, "null"), preset(func(*Config) {}))
			for value, found := range golden.wrong {
				_, _, err := Parse(file(k.Name, value))
				want := KeyError{Key: k.Name, Expected: k.Type, Found: found}.Error()
				if err == nil || err.Error() != want {
					t.Errorf("%s: got %v, want %s", value, err, want)
				}
			}
		})
	}
	if len(goldens) != len(Keys()) {
		t.Errorf("%d goldens for %d keys", len(goldens), len(Keys()))
	}
}

func TestC1_3EmptyIsAbsent(t *testing.T) {
	for _, raw := range []string{`{}`, ` {"confDir": "", "globalNamespaces": "", "systemNamespaces": [], "logLevel": "", "delegates": [], "multusMasterCNI": "", "logOptions": {"maxAge": null}}`} {
		got, warnings, err := Parse([]byte(raw))
		if err != nil || warnings != nil {
			t.Fatal(warnings, err)
		}
		if diff := cmp.Diff(preset(func(*Config) {}), got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
	got, _, err := Parse([]byte(`{"globalNamespaces": ["a", "b"]}`))
	if diff := cmp.Diff(preset(func(c *Config) { c.GlobalNamespaces = []string{"a", "b"} }), got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestT10WrongKeysAllAtOnce(t *testing.T) {
	_, warnings, err := Parse([]byte(`{"metricsPort": "9091", "connectionLimit": 0, "logLevel": "Loud", "logOptions": {"maxAge": "x", "Compress": 1}, "foo": 1, "perNodeCertificate": {"enabled": true, "certDir": 5}}`))
	const want = `key "logOptions.maxAge": expected a number of days, found the text "x"
key "logOptions.compress": expected true or false, found the number 1
key "connectionLimit": expected a whole number above zero, found the number 0
key "metricsPort": expected a number from 0 to 65535, found the text "9091"
key "perNodeCertificate.certDir": expected a path, found the number 5
key "perNodeCertificate.bootstrapKubeconfig": expected a value, because "perNodeCertificate.enabled" is true, found none`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if diff := cmp.Diff([]Warning{`key "logLevel": there is no level "loud", want one of panic, error, verbose, debug`, `unknown key "foo" is ignored`}, warnings); diff != "" {
		t.Error(diff)
	}
}

func TestT10UnknownKeysWarn(t *testing.T) {
	got, warnings, err := Parse([]byte(`{"zzz": 1, "confDr": "/x", "confdir": "/low", "confDir": "/exact", "logOptions": {"maxAges": 1}, "logOptions.maxAge": 9, "clusternetwork": "a", "nothing": null}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(preset(func(c *Config) { c.ConfDir, c.ClusterNetwork = "/exact", "a" }), got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Warning{
		`unknown key "confDr" is ignored, did you mean "confDir"?`,
		`unknown key "confdir" is ignored, another spelling of "confDir" is given too`,
		`unknown key "logOptions.maxAge" is ignored`,
		`unknown key "logOptions.maxAges" is ignored, did you mean "logOptions.maxAge"?`,
		`unknown key "zzz" is ignored`,
	}, warnings); diff != "" {
		t.Error(diff)
	}
}

func TestT10NotAnObject(t *testing.T) {
	for raw, want := range map[string]string{
		``:            "the configuration is not valid JSON at byte 0: unexpected end of JSON input",
		`[]`:          "the configuration is not a JSON object",
		`{"a": 1,}`:   "the configuration is not valid JSON at byte 9: invalid character '}' looking for beginning of object key string",
		`{"a": 1} {}`: "the configuration is not valid JSON at byte 10: invalid character '{' after top-level value",
	} {
		c, _, err := Parse([]byte(raw))
		if err == nil || err.Error() != want || c != nil {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

func TestC1_3Combinations(t *testing.T) {
	for raw, want := range map[string]string{
		`{"perNodeCertificate": {"enabled": true}}`: `key "perNodeCertificate.bootstrapKubeconfig": expected a value, because "perNodeCertificate.enabled" is true, found none
key "perNodeCertificate.certDir": expected a value, because "perNodeCertificate.enabled" is true, found none`,
		`{"forceCNIVersion": true}`: `key "cniVersion": expected a value, because "forceCNIVersion" is true, found none`,
	} {
		if _, _, err := Parse([]byte(raw)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
	for raw, want := range map[string]struct {
		warning Warning
		sets    func(*Config)
	}{
		`{"perNodeCertificate": {"enabled": true, "bootstrapKubeconfig": "/b", "certDir": "/c"}}`: {"", func(c *Config) {
			c.PerNodeCertificate = PerNodeCertificate{Enabled: true, BootstrapKubeconfig: "/b", CertDir: "/c", CertDuration: 10 * time.Minute}
		}},
		`{"forceCNIVersion": true, "cniVersion": "1.0.0"}`: {"", func(c *Config) { c.ForceCNIVersion, c.CNIVersion = true, "1.0.0" }},
		`{"clusterNetwork": "a", "delegates": [{}]}`:       {`key "delegates" has no effect beside "clusterNetwork"`, func(c *Config) { c.ClusterNetwork = "a" }},
		`{"multusMasterCNI": "a", "multusConfigFile": "/b"}`: {
			`key "multusMasterCNI" has no effect where "multusConfigFile" is not "auto"`,
			func(c *Config) { c.MultusMasterCNI, c.MultusConfigFile = "a", "/b" },
		},
		`{"enablePprof": true}`:                   {`key "enablePprof" has no effect without "metricsPort"`, func(c *Config) { c.EnablePprof = true }},
		`{"enablePprof": true, "metricsPort": 9}`: {"", func(c *Config) { c.EnablePprof, c.MetricsPort = true, 9 }},
	} {
		got, warnings, err := Parse([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		var warned []Warning
		if want.warning != "" {
			warned = []Warning{want.warning}
		}
		if diff := cmp.Diff(warned, warnings) + cmp.Diff(preset(want.sets), got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func TestC1_3Samples(t *testing.T) {
	for name, sets := range map[string]func(*Config){
		"eks-daemon-config.json": func(c *Config) {
			c.ChrootDir, c.ConfDir, c.LogFile, c.LogLevel, c.LogToStderr = "/hostroot", "/host/etc/cni/net.d", "/var/log/multus.log", "verbose", yes()
			c.SocketDir, c.CNIVersion, c.CNIConfigDir = "/host/run/multus/", "0.3.1", "/host/etc/cni/net.d"
			c.MultusAutoconfigDir, c.MultusMasterCNI = "/host/etc/cni/net.d", "10-aws.conflist"
		},
		"rke2-cni-conf.json": func(c *Config) {
			const dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
			c.ConfDir, c.BinDir, c.Kubeconfig = dir, "/var/lib/rancher/k3s/data/cni", dir+"/multus.d/multus.kubeconfig"
			c.MultusAutoconfigDir, c.LogLevel = dir, "error"
		},
		"v4-00-multus.conf": func(c *Config) {
			c.CNIVersion, c.Type, c.LogLevel, c.LogToStderr = "0.4.0", "multus-shim", "error", yes()
			c.ClusterNetwork, c.DaemonSocketDir = "/host/etc/cni/net.d/10-primary.conflist", "/run/multus"
		},
	} {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got, warnings, err := Parse(raw)
		if err != nil || warnings != nil {
			t.Errorf("%s: %v %v", name, warnings, err)
		}
		if diff := cmp.Diff(preset(sets), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestC1_3Overlay(t *testing.T) {
	for _, tc := range []struct{ name, stdin, file, want string }{
		{
			"every key of the file wins, known or not", `{"type": "multus-shim", "logLevel": "debug", "x": {"n": 9007199254740993}}`,
			`{"logLevel": "error", "vendor": [1.0], "name": "n"}`,
			`{"type":"multus-shim","logLevel":"error","x":{"n":9007199254740993},"vendor":[1.0],"name":"n"}`,
		},
		{"in any case of letters", `{"confdir": "/a", "CONFDIR": "/b", "type": "t"}`, `{"confDir": "/c"}`, `{"type":"t","confDir":"/c"}`},
		{"both spellings in the file", `{"confdir": "/a"}`, `{"confDir": "/c", "confdir": "/d"}`, `{"confdir":"/d","confDir":"/c"}`},
		{
			"null is no key", `{"clusterNetwork": "/a", "confDir": "/x"}`, `{"clusterNetwork": null, "confDir": null, "confdir": "/y"}`,
			`{"clusterNetwork":"/a","confdir":"/y"}`,
		},
		{"an object is replaced, not merged", `{"logOptions": {"maxAge": 1}}`, `{"logOptions": {"maxSize": 2}}`, `{"logOptions":{"maxSize":2}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Overlay([]byte(tc.stdin), []byte(tc.file))
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
	for _, tc := range [][3]string{
		{`[`, `{}`, "the runtime's configuration is not valid JSON at byte 1: unexpected end of JSON input"},
		{`{}`, `5`, "the daemon's configuration is not a JSON object"},
	} {
		if _, err := Overlay([]byte(tc[0]), []byte(tc[1])); err == nil || err.Error() != tc[2] {
			t.Errorf("got %v, want %s", err, tc[2])
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"eks-daemon-config.json", "rke2-cni-conf.json", "v4-00-multus.conf"} {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	for key, golden := range goldens {
		f.Add(file(key, golden.value))
		for value := range golden.wrong {
			f.Add(file(key, value))
		}
	}
	f.Add([]byte(`{"confdir": "/a", "confDir": null, "CONFDIR": 1, "logoptions": {"MAXAGE": 1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, warnings, err := Parse(raw)
		for _, w := range warnings {
			if strings.ContainsAny(string(w), "\n\r") {
				t.Errorf("warning of several lines: %q", w)
			}
		}
		if err != nil {
			return
		}
		// What the daemon's file says is what a plugin gets that says nothing itself.
		merged, err := Overlay([]byte(`{}`), raw)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Parse(merged)
		if err != nil {
			t.Fatalf("%s: %v", merged, err)
		}
		if diff := cmp.Diff(got, again, cmp.Comparer(sameJSON)); diff != "" {
			t.Error(diff)
		}
	})
}

// sameJSON compares raw values without their white space.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return len(a) == len(b) && len(a) == 0 || json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && x.String() == y.String()
}
