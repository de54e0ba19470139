package config

import (
	"encoding/json"
	"math"
	"time"

	"github.com/multus-thick/multus/internal/cniconf"
)

// Who reads a key.
const (
	daemon    = "daemon"    // at its start
	generator = "generator" // of the node's generated configuration
	plugin    = "plugin"    // and whoever plans for it, for each pod
)

// Key is one key of the configuration: for people, and for the decoder.
type Key struct {
	Name string // with the key of the object that holds it before a dot
	kind
	Default string   // as JSON; empty for none
	Readers []string // daemon, generator, plugin
	Meaning string
	// Instead is the key that has effect in place of this one, which v4 documented and
	// never read.
	Instead string

	group string // the key of the object that holds it
}

// Keys is the table of all keys: the decoder works from it, and the reference
// documentation is made of it. Sources: contract 1.3 and design.md.
func Keys() []Key {
	var keys []Key
	for _, part := range [][]Key{standardKeys(), networkKeys(), policyKeys(), loggingKeys(), behaviourKeys(), daemonKeys(), metricsTLSKeys(), nodeCertificateKeys(), careKeys(), generatorKeys()} {
		keys = append(keys, part...)
	}
	return keys
}

// members are the keys of one object.
func members(group string, keys ...Key) []Key {
	for i := range keys {
		keys[i].Name = group + "." + keys[i].Name
		keys[i].group = group
	}
	return keys
}

func by(readers ...string) []string { return readers }

// quoted is a default as JSON.
func quoted(v any) string { return string(cniconf.Quote(v)) }

func standardKeys() []Key {
	none := func(name, meaning string) Key {
		return Key{Name: name, kind: ignored(), Readers: by(plugin), Meaning: meaning}
	}
	return []Key{
		{
			Name: "cniVersion", kind: text(func(c *Config) *string { return &c.CNIVersion }), Readers: by(generator, plugin),
			Meaning: "CNI version of the configuration and of the answer to the runtime",
		},
		{
			Name: "name", kind: text(func(c *Config) *string { return &c.Name }), Default: quoted(DefaultNetworkName), Readers: by(plugin),
			Meaning: "name of the network that the runtime sees",
		},
		{
			Name: "type", kind: text(func(c *Config) *string { return &c.Type }), Readers: by(generator, plugin),
			Meaning: "plugin that the runtime runs",
		},
		{
			Name: "capabilities", kind: value("an object of true and false", func(c *Config) *map[string]bool { return &c.Capabilities }, nil), Readers: by(generator, plugin),
			Meaning: "capabilities declared to the runtime; those of the primary network are added to the generated configuration",
		},
		{
			Name: "runtimeConfig", kind: value("an object", func(c *Config) *map[string]json.RawMessage { return &c.RuntimeConfig }, nil), Readers: by(plugin),
			Meaning: "capability arguments, as the runtime sends them",
		},
		{
			Name: "prevResult", kind: value("an object", func(c *Config) *json.RawMessage { return &c.PrevResult }, isObject), Readers: by(plugin),
			Meaning: "result of an earlier ADD, as the runtime sends it",
		},
		none("ipam", "standard CNI key, without effect"),
		none("dns", "standard CNI key, without effect"),
		none("args", "standard CNI key, without effect"),
		none("ipMasq", "standard CNI key, without effect"),
		none("disableCheck", "standard CNI key, read by the runtime"),
		none("disableGC", "standard CNI key, read by the runtime"),
		none("loadOnlyInlinedPlugins", "standard CNI key, read by the runtime"),
		none("cni.dev/valid-attachments", "attachments that live, as the runtime sends them with GC"),
		none("cni.dev/attachments", "the older spelling of cni.dev/valid-attachments"),
	}
}

func networkKeys() []Key {
	return []Key{
		{
			Name: "confDir", kind: path(func(c *Config) *string { return &c.ConfDir }), Default: quoted(DefaultConfDir), Readers: by(plugin),
			Meaning: "folder of the configurations of networks that are named, and of definitions without spec.config",
		},
		{
			Name: "cniDir", kind: path(func(c *Config) *string { return &c.CNIDir }), Default: quoted(DefaultCNIDir), Readers: by(generator, plugin),
			Meaning: "folder on the host of the records of sandboxes and of libcni's cache",
		},
		{
			Name: "binDir", kind: path(func(c *Config) *string { return &c.BinDir }), Default: quoted(DefaultBinDir), Readers: by(generator, plugin),
			Meaning: "folder on the host of the delegates, searched before CNI_PATH",
		},
		{
			Name: "delegates", kind: list("a list of CNI configurations", func(c *Config) *[]json.RawMessage { return &c.Delegates }, isObject), Readers: by(plugin),
			Meaning: "configurations of the node's networks, the primary first; without effect beside clusterNetwork",
		},
		{
			Name: "clusterNetwork", kind: text(func(c *Config) *string { return &c.ClusterNetwork }), Readers: by(generator, plugin),
			Meaning: "the primary network: a definition in multusNamespace, the name of a configuration in confDir, a folder or a file; a value with a slash is a path",
		},
		{
			Name: "defaultNetworks", kind: names(func(c *Config) *[]string { return &c.DefaultNetworks }), Readers: by(plugin),
			Meaning: "networks for every pod outside systemNamespaces, found like clusterNetwork and used only beside it",
		},
		{
			Name: "kubeconfig", kind: path(func(c *Config) *string { return &c.Kubeconfig }), Readers: by(daemon, plugin),
			Meaning: "kubeconfig file; the service account of the pod where empty; a folder of YAML files stands for the API",
		},
		{
			Name: "readinessindicatorfile", kind: path(func(c *Config) *string { return &c.ReadinessIndicatorFile }), Readers: by(generator, plugin),
			Meaning: "file that exists while the primary network is ready",
		},
	}
}

func policyKeys() []Key {
	return []Key{
		{
			Name: "namespaceIsolation", kind: flag(func(c *Config) *bool { return &c.NamespaceIsolation }), Default: "false", Readers: by(generator, plugin),
			Meaning: "pods select only networks of their own namespace and of globalNamespaces",
		},
		{
			Name: "isolateDefaultNetwork", kind: flag(func(c *Config) *bool { return &c.IsolateDefaultNetwork }), Default: "false", Readers: by(plugin),
			Meaning: "namespaceIsolation covers the default-network annotation too",
		},
		{
			Name: "globalNamespaces", kind: commaNames(func(c *Config) *[]string { return &c.GlobalNamespaces }), Default: quoted(DefaultGlobalNamespace), Readers: by(generator, plugin),
			Meaning: "namespaces whose networks every pod may select under namespaceIsolation; replaces the default",
		},
		{
			Name: "allowedPlugins", kind: someNames(func(c *Config) *[]string { return &c.AllowedPlugins }), Readers: by(generator, plugin),
			Meaning: "types of plugins, IPAM plugins included, that the definitions which pods choose may name; all where absent",
		},
		{
			Name: "allowedNamespaces", kind: someNames(func(c *Config) *[]string { return &c.AllowedNamespaces }), Readers: by(generator, plugin),
			Meaning: "namespaces whose definitions pods may choose, whatever their own namespace is; all where absent",
		},
		{
			Name: "systemNamespaces", kind: names(func(c *Config) *[]string { return &c.SystemNamespaces }), Default: quoted([]string{DefaultSystemNamespace}), Readers: by(plugin),
			Meaning: "namespaces whose pods get no defaultNetworks",
		},
		{
			Name: "multusNamespace", kind: text(func(c *Config) *string { return &c.MultusNamespace }), Default: quoted(DefaultMultusNamespace), Readers: by(plugin),
			Meaning: "namespace of clusterNetwork, defaultNetworks and the default-network annotation",
		},
		{
			Name: "retryDeleteOnError", kind: flag(func(c *Config) *bool { return &c.RetryDeleteOnError }), Default: "false", Readers: by(plugin),
			Meaning: "accepted from v4: the record of a sandbox stays in any case until its DEL has succeeded",
		},
		{
			Name: "allowTryDeleteOnErr", kind: ignored(), Readers: by(plugin), Instead: "retryDeleteOnError",
			Meaning: "documented by v4 and never read",
		},
		{
			Name: "auxiliaryCNIChainName", kind: text(func(c *Config) *string { return &c.AuxiliaryCNIChainName }), Readers: by(generator, plugin),
			Meaning: "name of a further network for every pod, of the plugins in the folder of that name beside the primary network's file",
		},
		{
			Name: "capabilityCheck", kind: choice(func(c *Config) *string { return &c.CapabilityCheck }, "warn", "error"), Default: quoted("warn"), Readers: by(plugin),
			Meaning: "what happens where a pod asks for ips, mac or infiniband-guid and no plugin declares the capability",
		},
	}
}

func loggingKeys() []Key {
	// The largest number that lumberjack can turn into bytes or hours.
	const most = math.MaxInt32
	return append([]Key{
		{
			Name: "logFile", kind: path(func(c *Config) *string { return &c.LogFile }), Readers: by(daemon, generator, plugin),
			Meaning: "file that the log goes to",
		},
		{
			Name: "logLevel", kind: textIf("the name of a level", func(c *Config) *string { return &c.LogLevel }, func(string) bool { return true }), Readers: by(daemon, generator, plugin),
			Meaning: "how much is logged: panic, error, verbose or debug; error where absent",
		},
		{
			Name: "logFormat", kind: choice(func(c *Config) *string { return &c.LogFormat }, "text", "json"), Default: quoted("text"), Readers: by(daemon, generator, plugin),
			Meaning: "how a line of the log is written: key=value, or one JSON object",
		},
		{
			Name: "logToStderr", kind: value("true or false", func(c *Config) **bool { return &c.LogToStderr }, nil), Readers: by(daemon, generator, plugin),
			Meaning: "the log goes to standard error; where absent, that of multus and the daemon's do, that of multus-shim does not",
		},
		{
			Name: "logOptions", kind: group(), Readers: by(daemon, generator, plugin),
			Meaning: "rotation of logFile",
		},
	}, members("logOptions",
		Key{
			Name: "maxAge", kind: number("a number of days", func(c *Config) *int { return &c.LogOptions.MaxAge }, 0, most), Default: "5", Readers: by(daemon, generator, plugin),
			Meaning: "days for which a rotated file is kept",
		},
		Key{
			Name: "maxSize", kind: number("a number of megabytes", func(c *Config) *int { return &c.LogOptions.MaxSize }, 0, most), Default: "100", Readers: by(daemon, generator, plugin),
			Meaning: "megabytes at which the file is rotated",
		},
		Key{
			Name: "maxBackups", kind: number("a number of files", func(c *Config) *int { return &c.LogOptions.MaxBackups }, 0, most), Default: "5", Readers: by(daemon, generator, plugin),
			Meaning: "rotated files that are kept",
		},
		Key{
			Name: "compress", kind: flag(func(c *Config) *bool { return &c.LogOptions.Compress }), Default: "true", Readers: by(daemon, generator, plugin),
			Meaning: "rotated files are compressed; by the daemon, for a plugin does not run long enough",
		},
	)...)
}

func behaviourKeys() []Key {
	timeout := func(name string, preset time.Duration, meaning string, at func(*Config) *time.Duration) Key {
		return Key{Name: name, kind: duration(at), Default: quoted(preset.String()), Readers: by(plugin), Meaning: meaning}
	}
	return []Key{
		{
			Name: "daemonSocketDir", kind: path(func(c *Config) *string { return &c.DaemonSocketDir }), Default: quoted(DefaultSocketDir), Readers: by(generator, plugin),
			Meaning: "folder of the daemon's socket, as the host sees it",
		},
		timeout("daemonTimeout", DefaultDaemonTimeout, "how long an operation waits for the daemon's socket",
			func(c *Config) *time.Duration { return &c.DaemonTimeout }),
		timeout("addTimeout", DefaultAddTimeout, "how long an ADD may take",
			func(c *Config) *time.Duration { return &c.AddTimeout }),
		timeout("delTimeout", DefaultDelTimeout, "how long a DEL may take",
			func(c *Config) *time.Duration { return &c.DelTimeout }),
		timeout("delegateTimeout", DefaultDelegateTimeout, "how long one delegate may take",
			func(c *Config) *time.Duration { return &c.DelegateTimeout }),
		{
			Name: "attachParallelism", kind: number("a whole number above zero", func(c *Config) *int { return &c.AttachParallelism }, 1, math.MaxInt), Default: "1", Readers: by(plugin),
			Meaning: "secondary networks that are attached at once",
		},
		{
			Name: "checkDelegates", kind: flag(func(c *Config) *bool { return &c.CheckDelegates }), Default: "false", Readers: by(plugin),
			Meaning: "CHECK asks the delegates of secondary networks too",
		},
		{
			Name: "networkStatus", kind: choice(func(c *Config) *string { return &c.NetworkStatus }, "async", "required"), Default: quoted("async"), Readers: by(daemon, plugin),
			Meaning: "whether an ADD fails where the network-status annotation cannot be written",
		},
		{
			Name: "delegateEnv", kind: list("a list of names of environment variables", func(c *Config) *[]string { return &c.DelegateEnv }, isEnvName), Readers: by(daemon),
			Meaning: "environment variables of the daemon that delegates get",
		},
		{
			Name: "claimStatus", kind: flag(func(c *Config) *bool { return &c.ClaimStatus }), Default: "false", Readers: by(daemon),
			Meaning: "the status of a resource claim (DRA) gets interface, addresses and MAC of its attached devices; needs the RBAC of deploy/claim-status",
		},
		{
			Name: "host", kind: value("an object", func(c *Config) **HostView { return &c.Host }, nil), Readers: by(plugin),
			Meaning: "written by the daemon into the generated configuration: where the primary network is on the host",
		},
	}
}

func daemonKeys() []Key {
	return []Key{
		{
			Name: "chrootDir", kind: path(func(c *Config) *string { return &c.ChrootDir }), Readers: by(daemon),
			Meaning: "the host's root as the daemon sees it, for what the daemon itself runs on the host",
		},
		{
			Name: "socketDir", kind: path(func(c *Config) *string { return &c.SocketDir }), Default: quoted(DefaultSocketDir), Readers: by(daemon),
			Meaning: "folder of the daemon's socket, as the daemon sees it",
		},
		{
			Name: "connectionLimit", kind: number("a whole number above zero", func(c *Config) *int { return &c.ConnectionLimit }, 1, math.MaxInt), Readers: by(daemon),
			Meaning: "ADDs of annotated pods that run at once; where absent, it follows from the number of CPUs",
		},
		{
			Name: "metricsPort", kind: number("a number from 0 to 65535", func(c *Config) *int { return &c.MetricsPort }, 0, math.MaxUint16), Readers: by(daemon),
			Meaning: "port of the metrics; none where absent",
		},
		{
			Name: "metricsAddress", kind: text(func(c *Config) *string { return &c.MetricsAddress }), Readers: by(daemon),
			Meaning: "address that metricsPort is bound to; all addresses where absent",
		},
		{
			Name: "metricsTokenReview", kind: flag(func(c *Config) *bool { return &c.MetricsTokenReview }), Default: "false", Readers: by(daemon),
			Meaning: "metricsPort answers only callers whose bearer token the API server knows, and lets get the path; needs metricsTLS. Health is for all",
		},
		{
			Name: "enablePprof", kind: flag(func(c *Config) *bool { return &c.EnablePprof }), Default: "false", Readers: by(daemon),
			Meaning: "profiles are served on metricsPort",
		},
		{
			Name: "hotplug", kind: flag(func(c *Config) *bool { return &c.Hotplug }), Default: "false", Readers: by(daemon),
			Meaning: "a change of a running pod's annotation attaches and detaches networks; needs chrootDir and the host's privileges",
		},
		{
			Name: "drainTimeout", kind: duration(func(c *Config) *time.Duration { return &c.DrainTimeout }), Default: quoted(DefaultDrainTimeout.String()), Readers: by(daemon),
			Meaning: "how long a daemon that stops waits for what is in flight",
		},
	}
}

// metricsTLSKeys are the key metricsTLS and those in it.
func metricsTLSKeys() []Key {
	return append([]Key{
		{
			Name: "metricsTLS", kind: group(), Readers: by(daemon),
			Meaning: "metricsPort speaks TLS, 1.2 or later",
		},
	}, members("metricsTLS",
		Key{
			Name: "certFile", kind: path(func(c *Config) *string { return &c.MetricsTLS.CertFile }), Readers: by(daemon),
			Meaning: "PEM file of the certificate and those that signed it; read again when it changes",
		},
		Key{
			Name: "keyFile", kind: path(func(c *Config) *string { return &c.MetricsTLS.KeyFile }), Readers: by(daemon),
			Meaning: "PEM file of its key",
		},
	)...)
}

// nodeCertificateKeys are the key perNodeCertificate and those in it.
func nodeCertificateKeys() []Key {
	return append([]Key{
		{
			Name: "perNodeCertificate", kind: group(), Readers: by(daemon),
			Meaning: "the daemon's client certificate is one of its node",
		},
	}, members("perNodeCertificate",
		Key{
			Name: "enabled", kind: flag(func(c *Config) *bool { return &c.PerNodeCertificate.Enabled }), Default: "false", Readers: by(daemon),
			Meaning: "whether the daemon asks for such a certificate; needs bootstrapKubeconfig and certDir",
		},
		Key{
			Name: "bootstrapKubeconfig", kind: path(func(c *Config) *string { return &c.PerNodeCertificate.BootstrapKubeconfig }), Readers: by(daemon),
			Meaning: "kubeconfig file with which the daemon asks",
		},
		Key{
			Name: "certDir", kind: path(func(c *Config) *string { return &c.PerNodeCertificate.CertDir }), Readers: by(daemon),
			Meaning: "folder in which the certificate is kept",
		},
		Key{
			Name: "certDuration", kind: duration(func(c *Config) *time.Duration { return &c.PerNodeCertificate.CertDuration }), Default: quoted("10m"), Readers: by(daemon),
			Meaning: "how long a certificate is asked for",
		},
	)...)
}

// careKeys are of what the daemon looks after in the background.
func careKeys() []Key {
	return []Key{
		{
			Name: "orphans", kind: choice(func(c *Config) *string { return &c.Orphans }, "clean", "dry-run", "off"), Default: quoted("clean"), Readers: by(daemon),
			Meaning: "what becomes of records, files of Multus v4 and results of libcni whose pod and namespace are gone: given back, only told of, or not looked for",
		},
		{
			Name: "strays", kind: choice(func(c *Config) *string { return &c.Strays }, "report", "attach", "restart"), Default: quoted("report"), Readers: by(daemon),
			Meaning: "what becomes of running pods that select networks and that Multus never attached: told of, attached late (needs chrootDir), or evicted (needs RBAC)",
		},
		{
			Name: "criSocketPath", kind: path(func(c *Config) *string { return &c.CRISocketPath }), Default: quoted(DefaultCRISocketPath), Readers: by(daemon),
			Meaning: "the container runtime's socket on the host, asked only where chrootDir is set",
		},
		{
			Name: "checkInterval", kind: duration(func(c *Config) *time.Duration { return &c.CheckInterval }), Readers: by(daemon),
			Meaning: "how often each pod's interfaces are compared with what they were given (needs chrootDir); never where absent",
		},
		{
			Name: "checkPolicy", kind: choice(func(c *Config) *string { return &c.CheckPolicy }, "report", "repair"), Default: quoted("report"), Readers: by(daemon),
			Meaning: "whether lost addresses and routes, and interfaces that are down, are only told of or put right",
		},
	}
}

func generatorKeys() []Key {
	return []Key{
		{
			Name: "multusConfigFile", kind: path(func(c *Config) *string { return &c.MultusConfigFile }), Default: quoted(AutoConfigFile), Readers: by(generator),
			Meaning: `"auto" to generate the configuration, or the path of one that is copied`,
		},
		{
			Name: "cniConfigDir", kind: path(func(c *Config) *string { return &c.CNIConfigDir }), Default: quoted(DefaultCNIConfigDir), Readers: by(generator),
			Meaning: "folder in which the configuration is written, as the daemon sees it",
		},
		{
			Name: "hostCniConfigDir", kind: path(func(c *Config) *string { return &c.HostCNIConfigDir }), Readers: by(generator),
			Meaning: "the folder multusAutoconfigDir as the host sees it; found from the mounts where absent",
		},
		{
			Name: "multusAutoconfigDir", kind: path(func(c *Config) *string { return &c.MultusAutoconfigDir }), Readers: by(generator),
			Meaning: "folder in which the primary network's configuration is looked for, as the daemon sees it",
		},
		{
			Name: "multusMasterCNI", kind: textIf("a file name without a path", func(c *Config) *string { return &c.MultusMasterCNI }, isFileName), Readers: by(generator),
			Meaning: `file of the primary network in multusAutoconfigDir, such as "10-main.conflist": only this one, and waited for; the lowest-named valid one where absent`,
		},
		{
			Name: "forceCNIVersion", kind: flag(func(c *Config) *bool { return &c.ForceCNIVersion }), Default: "false", Readers: by(generator),
			Meaning: "the primary network gets cniVersion",
		},
		{
			Name: "overrideNetworkName", kind: flag(func(c *Config) *bool { return &c.OverrideNetworkName }), Default: "false", Readers: by(generator),
			Meaning: "the generated configuration has the primary network's name",
		},
		{
			Name: "cleanupConfigOnExit", kind: flag(func(c *Config) *bool { return &c.CleanupConfigOnExit }), Default: "false", Readers: by(generator),
			Meaning: "a daemon that stops removes the generated configuration",
		},
		{
			Name: "cniConf", kind: ignored(), Readers: by(plugin), Instead: "confDir",
			Meaning: "written by v4's thin_entrypoint and never read",
		},
	}
}
