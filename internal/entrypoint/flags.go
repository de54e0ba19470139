package entrypoint

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/cniconf"
)

// Flags are the flags of contract 1.2, and of keys that Multus v4 does not have. Those with
// a configuration key are read by it.
type Flags struct {
	set *pflag.FlagSet

	cniBinDir     string
	cniConfDir    string
	multusBinFile string
	multusConfDir string
	skipCopy      bool
	skipWatch     bool
	rename        bool
	skipTLSVerify bool
	restartCRIO   bool
}

// NewFlags defines the flags in set.
func NewFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	set.StringVar(&f.cniBinDir, "cni-bin-dir", "/host/opt/cni/bin", "the node's folder of CNI plugins, where the plugin is copied to")
	set.StringVar(&f.cniConfDir, "cni-conf-dir", "/host/etc/cni/net.d", "the node's folder of CNI configurations, where Multus's is written")
	set.String("cni-version", "", "CNI version of the configuration; the primary network's where empty")
	set.String("multus-conf-file", "auto", `"auto" to generate the configuration, or a file that is copied`)
	set.StringVar(&f.multusBinFile, "multus-bin-file", "/usr/src/multus-cni/bin/multus", "the plugin that is copied")
	set.StringVar(&f.multusConfDir, "multus-cni-conf-dir", "/host/etc/cni/multus/net.d", "the node's folder of the configurations of named networks")
	set.BoolVar(&f.skipCopy, "skip-multus-binary-copy", false, "do not copy the plugin")
	set.String("multus-kubeconfig-file-host", "/etc/cni/net.d/multus.d/multus.kubeconfig", "the kubeconfig's path as the plugin sees it")
	set.String("multus-master-cni-file-name", "", "file of the primary network; the first valid one where empty")
	set.Bool("namespace-isolation", false, "pods select only networks of their own namespace and of --global-namespaces")
	set.String("global-namespaces", "", "namespaces whose networks every pod may select, with commas between")
	set.Bool("isolate-default-network", false, "--namespace-isolation covers the default-network annotation too")
	set.StringSlice("allowed-namespaces", nil, "namespaces whose networks pods may select, with commas between; all where absent")
	set.StringSlice("allowed-plugins", nil, "plugins that a selected network may run, with commas between; all where absent")
	set.String("multus-autoconfig-dir", "/host/etc/cni/net.d", "folder in which the primary network's file is looked for")
	set.Bool("multus-log-to-stderr", true, "the plugin logs to standard error")
	set.String("multus-log-level", "", "the plugin's log level: debug, verbose, error or panic")
	set.String("multus-log-file", "", "the plugin's log file")
	set.String("multus-log-format", "", "of the plugin's log: text or json")
	set.Bool("override-network-name", false, "the configuration has the primary network's name")
	set.Bool("cleanup-config-on-exit", false, "remove the configuration at the end")
	set.BoolVar(&f.skipWatch, "skip-config-watch", false, "leave the configuration alone once it is written")
	set.BoolVar(&f.rename, "rename-conf-file", false, "rename the primary network's file to FILE.old")
	set.String("readiness-indicator-file", "", "file on the host that exists while the primary network is ready")
	set.String("additional-bin-dir", "", "folder on the host that is searched for delegates first")
	set.BoolVar(&f.skipTLSVerify, "skip-tls-verify", false, "the plugin does not verify the API server's certificate")
	set.Bool("force-cni-version", false, "the primary network gets --cni-version")
	set.BoolVar(&f.restartCRIO, "restart-crio", false, "accepted from v3, without effect: CRI-O notices a new configuration")
	for _, hidden := range []string{"skip-tls-verify", "force-cni-version", "restart-crio"} {
		_ = set.MarkHidden(hidden) // exists: defined above
	}
	return f
}

// place is where a flag has its place in a thick installation.
type place struct {
	key string // of the configuration; "" for none
	why string // there is none
}

const installed = "install_multus copies the plugins"

// places is the table of all flags. Those without a key concern the thin entrypoint's
// own work.
var places = map[string]place{
	"cni-bin-dir":                 {why: installed},
	"cni-conf-dir":                {key: "cniConfigDir"},
	"cni-version":                 {key: "cniVersion"},
	"multus-conf-file":            {key: "multusConfigFile"},
	"multus-bin-file":             {why: installed},
	"multus-cni-conf-dir":         {key: "confDir"},
	"skip-multus-binary-copy":     {why: installed},
	"multus-kubeconfig-file-host": {why: "the plugin asks the daemon, not the API server"},
	"multus-master-cni-file-name": {key: "multusMasterCNI"},
	"namespace-isolation":         {key: "namespaceIsolation"},
	"global-namespaces":           {key: "globalNamespaces"},
	"isolate-default-network":     {key: "isolateDefaultNetwork"},
	"allowed-namespaces":          {key: "allowedNamespaces"},
	"allowed-plugins":             {key: "allowedPlugins"},
	"multus-autoconfig-dir":       {key: "multusAutoconfigDir"},
	"multus-log-to-stderr":        {key: "logToStderr"},
	"multus-log-level":            {key: "logLevel"},
	"multus-log-file":             {key: "logFile"},
	"multus-log-format":           {key: "logFormat"},
	"override-network-name":       {key: "overrideNetworkName"},
	"cleanup-config-on-exit":      {key: "cleanupConfigOnExit"},
	"skip-config-watch":           {why: "the daemon follows the primary network in any case"},
	"rename-conf-file":            {why: "the primary network's file is read for each pod, and keeps its name"},
	"readiness-indicator-file":    {key: "readinessindicatorfile"},
	"additional-bin-dir":          {key: "binDir"},
	"skip-tls-verify":             {why: "the daemon verifies the API server's certificate, but where its kubeconfig says otherwise"},
	"force-cni-version":           {key: "forceCNIVersion"},
	"restart-crio":                {why: "CRI-O notices a new configuration by itself"},
}

// jsonValue is a flag's value as its key takes it.
func jsonValue(f *pflag.Flag) json.RawMessage {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		names := list.GetSlice()
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		return cniconf.Quote(names)
	}
	if f.Value.Type() == "bool" {
		return json.RawMessage(f.Value.String())
	}
	return cniconf.Quote(f.Value.String())
}
