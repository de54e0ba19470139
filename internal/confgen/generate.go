package confgen

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// Input is what the generated configuration derives from.
type Input struct {
	Config *config.Config
	// Primary is the primary network, Path its file as the daemon sees it.
	Primary cniconf.Config
	Path    string
	// Auxiliary are the plugins of the node's auxiliary chain.
	Auxiliary []cniconf.Plugin
	// Host is where things are on the host; nil where the plugin must ask the daemon.
	Host *config.HostView
}

// Generate writes the content of 00-multus.conf (contract 1.3b): one plugin object
// of type multus-shim, as Multus v4's shim can read it too. Keys that have their
// default value are left out. The same input gives the same bytes.
func Generate(in Input) ([]byte, error) {
	cfg := in.Config
	if in.Path == "" && cfg.ClusterNetwork == "" {
		return nil, errors.New("cannot generate " + FileName + ": no primary network's file is known")
	}
	name := config.DefaultNetworkName
	if cfg.OverrideNetworkName {
		name = in.Primary.Name()
	}
	o := fields{}
	o.set("cniVersion", cmp.Or(cfg.CNIVersion, in.Primary.CNIVersion()))
	o.set("name", name)
	o.set("type", "multus-shim")
	o.set("capabilities", capabilities(in))
	o.set("clusterNetwork", cmp.Or(cfg.ClusterNetwork, in.Path))
	o.passThrough(cfg)
	if in.Host != nil {
		o.set("host", in.Host)
	}
	return append(o.Bytes(), '\n'), nil
}

// capabilities are what the runtime is to hand over: the configured ones, those of
// the plugins that run for every pod, and the pod's annotations.
func capabilities(in Input) map[string]bool {
	all := map[string]bool{config.PodAnnotationsCapability: true}
	enable := func(declared map[string]bool) {
		for name, enabled := range declared {
			if enabled {
				all[name] = true
			}
		}
	}
	enable(in.Config.Capabilities)
	for _, p := range slices.Concat(in.Primary.Plugins(), in.Auxiliary) {
		enable(p.Capabilities)
	}
	return all
}

// fields is the object under construction.
type fields struct{ cniconf.Object }

func (o *fields) set(key string, value any) { o.Object = o.With(key, cniconf.Quote(value)) }

// passThrough takes over the keys that the plugin on the host reads for itself.
func (o *fields) passThrough(cfg *config.Config) {
	o.text("binDir", cfg.BinDir, config.DefaultBinDir)
	o.text("cniDir", cfg.CNIDir, config.DefaultCNIDir)
	o.text("daemonSocketDir", cfg.DaemonSocketDir, config.DefaultSocketDir)
	o.text("auxiliaryCNIChainName", cfg.AuxiliaryCNIChainName, "")
	o.list("defaultNetworks", cfg.DefaultNetworks, nil)
	o.list("systemNamespaces", cfg.SystemNamespaces, []string{config.DefaultSystemNamespace})
	o.text("multusNamespace", cfg.MultusNamespace, config.DefaultMultusNamespace)
	o.flag("namespaceIsolation", cfg.NamespaceIsolation)
	o.flag("isolateDefaultNetwork", cfg.IsolateDefaultNetwork)
	o.text("globalNamespaces", strings.Join(cfg.GlobalNamespaces, ","), config.DefaultGlobalNamespace)
	o.list("allowedPlugins", cfg.AllowedPlugins, nil)
	o.list("allowedNamespaces", cfg.AllowedNamespaces, nil)
	o.text("capabilityCheck", cfg.CapabilityCheck, "warn")
	o.text("networkStatus", cfg.NetworkStatus, "async")
	o.flag("checkDelegates", cfg.CheckDelegates)
	o.flag("retryDeleteOnError", cfg.RetryDeleteOnError)
	if cfg.AttachParallelism > 1 {
		o.set("attachParallelism", cfg.AttachParallelism)
	}
	o.duration("daemonTimeout", cfg.DaemonTimeout, config.DefaultDaemonTimeout)
	o.duration("addTimeout", cfg.AddTimeout, config.DefaultAddTimeout)
	o.duration("delTimeout", cfg.DelTimeout, config.DefaultDelTimeout)
	o.duration("delegateTimeout", cfg.DelegateTimeout, config.DefaultDelegateTimeout)
	o.text("logFile", cfg.LogFile, "")
	o.text("logLevel", cfg.LogLevel, "")
	o.text("logFormat", cfg.LogFormat, "text")
	if cfg.LogToStderr != nil {
		o.set("logToStderr", *cfg.LogToStderr)
	}
	o.logOptions(cfg.LogOptions)
}

func (o *fields) text(key, value, normal string) {
	if value != "" && value != normal {
		o.set(key, value)
	}
}

func (o *fields) list(key string, value, normal []string) {
	if value != nil && !slices.Equal(value, normal) {
		o.set(key, value)
	}
}

func (o *fields) flag(key string, value bool) {
	if value {
		o.set(key, true)
	}
}

func (o *fields) duration(key string, value, normal time.Duration) {
	if value > 0 && value != normal {
		o.set(key, value.String())
	}
}

// defaultLogOptions are contract 1.3c's.
var defaultLogOptions = config.LogOptions{MaxAge: 5, MaxSize: 100, MaxBackups: 5, Compress: true}

func (o *fields) logOptions(value config.LogOptions) {
	if value != (config.LogOptions{}) && value != defaultLogOptions {
		o.set("logOptions", map[string]any{
			"maxAge": value.MaxAge, "maxSize": value.MaxSize, "maxBackups": value.MaxBackups, "compress": value.Compress,
		})
	}
}
