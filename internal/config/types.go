package config

import (
	"encoding/json"
	"time"

	"github.com/multus-thick/multus/api"
)

// Defaults of Multus v4, and the engine's own.
const (
	DefaultConfDir         = "/etc/cni/multus/net.d"
	DefaultCNIDir          = "/var/lib/cni/multus"
	DefaultBinDir          = "/opt/cni/bin"
	DefaultSocketDir       = "/run/multus/"
	DefaultCNIConfigDir    = "/etc/cni/net.d"
	DefaultNetworkName     = "multus-cni-network"
	DefaultMultusNamespace = "kube-system"
	DefaultSystemNamespace = "kube-system"
	DefaultGlobalNamespace = "default"
	DefaultCRISocketPath   = "/run/containerd/containerd.sock"

	DefaultDaemonTimeout   = 30 * time.Second
	DefaultAddTimeout      = 90 * time.Second
	DefaultDelTimeout      = 45 * time.Second
	DefaultDelegateTimeout = 3 * time.Minute
	DefaultDrainTimeout    = 8 * time.Second
)

// PodAnnotationsCapability is the capability by which containerd (from 1.5) and
// CRI-O (from 1.29) hand over the pod's annotations.
const PodAnnotationsCapability = "io.kubernetes.cri.pod-annotations"

// Config is everything that can be set. Keys are in the comments where they
// differ from the field's name in lower camel case. Zero durations are never left:
// Parse fills defaults.
type Config struct {
	// The CNI configuration's standard keys.
	CNIVersion    string
	Name          string
	Type          string
	Capabilities  map[string]bool
	RuntimeConfig map[string]json.RawMessage // as the runtime sent it
	PrevResult    json.RawMessage

	// What to attach (contract 1.3c).
	ConfDir                string
	CNIDir                 string // cniDir
	BinDir                 string
	Delegates              []json.RawMessage
	ClusterNetwork         string
	DefaultNetworks        []string
	Kubeconfig             string
	ReadinessIndicatorFile string // readinessindicatorfile
	NamespaceIsolation     bool
	IsolateDefaultNetwork  bool
	GlobalNamespaces       []string // a comma list in JSON; DefaultGlobalNamespace where absent
	AllowedPlugins         []string // nil for all
	AllowedNamespaces      []string // nil for all
	SystemNamespaces       []string // DefaultSystemNamespace where absent
	MultusNamespace        string
	RetryDeleteOnError     bool
	AuxiliaryCNIChainName  string // auxiliaryCNIChainName
	CapabilityCheck        string // "warn" or "error"

	// Logging.
	LogFile     string
	LogFormat   string // "text" or "json"
	LogLevel    string // panic, error, verbose or debug; "" for the reader's default
	LogToStderr *bool  // nil where absent: the daemon's default is false, the plugin's true
	LogOptions  LogOptions

	// How the plugin behaves.
	DaemonSocketDir   string // the folder of multus.sock as the host sees it
	DaemonTimeout     time.Duration
	AddTimeout        time.Duration
	DelTimeout        time.Duration
	DelegateTimeout   time.Duration
	AttachParallelism int // secondaries attached at once; 1 where absent
	CheckDelegates    bool
	NetworkStatus     string   // "async", or "required": an ADD fails where the status cannot be written
	DelegateEnv       []string // names of the daemon's environment variables that delegates get
	ClaimStatus       bool     // devices of resource claims are told of in the claims' status
	Host              *HostView

	// The daemon (contract 1.3a).
	ChrootDir          string
	SocketDir          string
	PerNodeCertificate PerNodeCertificate
	ConnectionLimit    int // annotated ADDs in flight; 0 where absent: from the CPU count
	MetricsPort        int // 0 for none
	MetricsAddress     string
	MetricsTLS         MetricsTLS
	MetricsTokenReview bool
	EnablePprof        bool
	Hotplug            bool
	DrainTimeout       time.Duration

	// What the daemon looks after.
	Orphans       string        // "clean", "dry-run" or "off"
	Strays        string        // "report", "attach" or "restart"
	CRISocketPath string        // criSocketPath: the runtime's socket on the host
	CheckInterval time.Duration // 0 where absent: no check
	CheckPolicy   string        // "report" or "repair"

	// The generated configuration (contract 1.3b).
	MultusConfigFile    string // "auto" or a path
	CNIConfigDir        string // cniConfigDir
	HostCNIConfigDir    string // hostCniConfigDir: cniConfigDir as the host sees it
	MultusAutoconfigDir string
	MultusMasterCNI     string // multusMasterCNI
	ForceCNIVersion     bool   // forceCNIVersion
	OverrideNetworkName bool
	CleanupConfigOnExit bool
}

// LogOptions are lumberjack's: days, megabytes, files (contract 1.3c).
type LogOptions struct {
	MaxAge, MaxSize, MaxBackups int
	Compress                    bool
}

// MetricsTLS names the files of the metrics server's certificate; both empty for plain HTTP.
type MetricsTLS struct{ CertFile, KeyFile string }

// PerNodeCertificate is contract 1.16.
type PerNodeCertificate struct {
	Enabled             bool
	BootstrapKubeconfig string
	CertDir             string
	CertDuration        time.Duration
}

// HostView is what the daemon writes into the generated configuration (key
// "host") so that the plugin can attach a plain pod alone: where things are in the
// host's own view.
type HostView struct {
	// PrimaryFile is the primary network's configuration file on the host.
	PrimaryFile string `json:"primaryFile,omitempty"`
	// Trusted says that the folder is certain: an administrator gave it
	// (hostCniConfigDir), or the daemon's mounts prove it. Else the plugin takes the
	// file only where Folder still is that folder, or the file holds the network that
	// Snapshot names.
	Trusted bool `json:"trusted,omitempty"`
	// Folder identifies PrimaryFile's folder as the daemon saw it.
	Folder *api.Place `json:"folder,omitempty"`
	// Snapshot is the primary network's configuration when the file was generated.
	Snapshot json.RawMessage `json:"snapshot,omitempty"`
	// IndicatorFile is readinessindicatorfile on the host.
	IndicatorFile string `json:"indicatorFile,omitempty"`
}
