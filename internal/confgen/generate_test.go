package confgen

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

func parsed(t *testing.T, raw string) cniconf.Config {
	t.Helper()
	c, err := cniconf.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// defaults is a configuration as config.Parse leaves it with nothing set.
func defaults() *config.Config {
	return &config.Config{
		BinDir: config.DefaultBinDir, CNIDir: config.DefaultCNIDir, ConfDir: config.DefaultConfDir, DaemonSocketDir: config.DefaultSocketDir,
		GlobalNamespaces: []string{config.DefaultGlobalNamespace}, SystemNamespaces: []string{config.DefaultSystemNamespace},
		MultusNamespace: config.DefaultMultusNamespace, CapabilityCheck: "warn", NetworkStatus: "async", AttachParallelism: 1,
		DaemonTimeout: config.DefaultDaemonTimeout, AddTimeout: config.DefaultAddTimeout, DelTimeout: config.DefaultDelTimeout,
		DelegateTimeout: config.DefaultDelegateTimeout, LogOptions: config.LogOptions{MaxAge: 5, MaxSize: 100, MaxBackups: 5, Compress: true},
		MultusConfigFile: "auto",
	}
}

func TestC1_3GeneratedFile(t *testing.T) {
	stderr := true
	everything := &config.Config{
		CNIVersion: "1.1.0", Name: "ignored", OverrideNetworkName: true, Capabilities: map[string]bool{"bandwidth": true, "dns": false},
		BinDir: "/opt/bin", CNIDir: "/var/cni", DaemonSocketDir: "/run/m", AuxiliaryCNIChainName: "aux", DefaultNetworks: []string{"storage"},
		SystemNamespaces: []string{}, MultusNamespace: "multus", NamespaceIsolation: true, IsolateDefaultNetwork: true,
		GlobalNamespaces: []string{"a", "b"}, AllowedPlugins: []string{"macvlan"}, AllowedNamespaces: []string{"infra"}, CapabilityCheck: "error", NetworkStatus: "required", CheckDelegates: true,
		RetryDeleteOnError: true, AttachParallelism: 8, DaemonTimeout: time.Second, AddTimeout: 2 * time.Second, DelTimeout: 90 * time.Second,
		DelegateTimeout: time.Minute, LogFile: "/log", LogLevel: "debug", LogFormat: "json", LogToStderr: &stderr, LogOptions: config.LogOptions{MaxAge: 1},
		// keys that v4 blanks, too
		CNIConfigDir: "/host/etc/cni/net.d", MultusMasterCNI: "10-a.conflist", ForceCNIVersion: true, ReadinessIndicatorFile: "/ready", MultusConfigFile: "auto",
	}
	aux, err := cniconf.ParsePlugin([]byte(`{"type":"tuning","capabilities":{"mac":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		in   Input
		want string
	}{
		"defaults": {
			Input{Config: defaults(), Primary: parsed(t, main10), Path: "/host/etc/cni/net.d/10-a.conflist"},
			`{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim","capabilities":{"io.kubernetes.cri.pod-annotations":true,"ips":true,"portMappings":true},` +
				`"clusterNetwork":"/host/etc/cni/net.d/10-a.conflist"}` + "\n",
		},
		"everything": {
			Input{
				Config: everything, Primary: parsed(t, main10), Path: "/d/10-a.conflist", Auxiliary: []cniconf.Plugin{aux},
				Host: &config.HostView{PrimaryFile: "/e/10-a.conflist", Folder: &api.Place{Path: "/d", Device: 1, Inode: 2, BootID: "b"}, Snapshot: json.RawMessage(`{"name":"main"}`)},
			},
			`{"cniVersion":"1.1.0","name":"main","type":"multus-shim","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true,"ips":true,"mac":true,"portMappings":true},` +
				`"clusterNetwork":"/d/10-a.conflist","binDir":"/opt/bin","cniDir":"/var/cni","daemonSocketDir":"/run/m","auxiliaryCNIChainName":"aux","defaultNetworks":["storage"],` +
				`"systemNamespaces":[],"multusNamespace":"multus","namespaceIsolation":true,"isolateDefaultNetwork":true,"globalNamespaces":"a,b","allowedPlugins":["macvlan"],"allowedNamespaces":["infra"],"capabilityCheck":"error",` +
				`"networkStatus":"required","checkDelegates":true,"retryDeleteOnError":true,"attachParallelism":8,"daemonTimeout":"1s","addTimeout":"2s","delTimeout":"1m30s",` +
				`"delegateTimeout":"1m0s","logFile":"/log","logLevel":"debug","logFormat":"json","logToStderr":true,"logOptions":{"compress":false,"maxAge":1,"maxBackups":0,"maxSize":0},` +
				`"host":{"primaryFile":"/e/10-a.conflist","folder":{"path":"/d","device":1,"inode":2,"bootID":"b"},"snapshot":{"name":"main"}}}` + "\n",
		},
		"the administrator's clusterNetwork": {
			Input{Config: &config.Config{ClusterNetwork: "ns-net"}, Primary: parsed(t, side20), Path: "/d/20-b.conf"},
			`{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim","capabilities":{"io.kubernetes.cri.pod-annotations":true},"clusterNetwork":"ns-net"}` + "\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 5 { // maps in the input must not show
				got, err := Generate(tt.in)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, string(got)); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestC1_3GenerateNeedsAPrimary(t *testing.T) {
	if got, err := Generate(Input{Config: defaults()}); err == nil {
		t.Errorf("generated without a primary network: %s", got)
	}
}

// The plugin reads what Generate writes, with the meaning that the daemon's file had.
func TestC1_3GeneratedFileReadsBack(t *testing.T) {
	const daemonFile = `{"cniVersion":"1.1.0","capabilities":{"bandwidth":true},"binDir":"/opt/bin","cniDir":"/var/cni","daemonSocketDir":"/run/m",
		"auxiliaryCNIChainName":"aux","defaultNetworks":["storage"],"systemNamespaces":[],"multusNamespace":"multus","namespaceIsolation":true,
		"isolateDefaultNetwork":true,"globalNamespaces":"a,b","allowedPlugins":["macvlan"],"allowedNamespaces":["infra"],"capabilityCheck":"error","networkStatus":"required","checkDelegates":true,
		"retryDeleteOnError":true,"attachParallelism":8,"daemonTimeout":1,"addTimeout":100,"delTimeout":95,"delegateTimeout":50,
		"logFile":"/log","logLevel":"debug","logFormat":"json","logToStderr":false,"logOptions":{"maxAge":1},"clusterNetwork":"/d/10-a.conflist"}`
	want, _, err := config.Parse([]byte(daemonFile))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := Generate(Input{Config: want, Primary: parsed(t, main10), Path: "/ignored", Host: &config.HostView{PrimaryFile: "/e/f", Trusted: true}})
	if err != nil {
		t.Fatal(err)
	}
	got, warnings, err := config.Parse(raw)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %v, in %s", err, warnings, raw)
	}
	// What the generator adds, and nothing else.
	expect := *want
	expect.Name, expect.Type = config.DefaultNetworkName, "multus-shim"
	expect.Capabilities = map[string]bool{"bandwidth": true, "ips": true, "portMappings": true, config.PodAnnotationsCapability: true}
	expect.Host = &config.HostView{PrimaryFile: "/e/f", Trusted: true}
	if diff := cmp.Diff(expect, *got); diff != "" {
		t.Error(diff)
	}
}
