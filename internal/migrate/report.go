package migrate

import (
	"encoding/json"

	"github.com/multus-thick/multus/internal/cniconf"
)

// Report is all of an answer. docs/migrate.md documents its JSON form, which is stable.
type Report struct {
	Installations []Installation `json:"installations"`
}

// Installation is one installation of Multus that was found.
type Installation struct {
	Found   Found   `json:"found"`
	Becomes Becomes `json:"becomes"`
	// Changes is what is different afterwards, NotCarried what does not come along.
	Changes    []Remark `json:"changes,omitempty"`
	NotCarried []Remark `json:"notCarried,omitempty"`
}

// Remark is one thing, the reason, and what to do where there is something to do.
type Remark struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do,omitempty"`
}

// Kind is how an installation works.
type Kind string

// The kinds. Hotplug is thick with the host's root, and only a target.
const (
	Thin    Kind = "thin"
	Thick   Kind = "thick"
	Hotplug Kind = "hotplug"
)

// Found is what there is.
type Found struct {
	// Source is the place in what was given, and ManagedBy "Helm" or "kubectl", where the
	// object says so.
	Source    string `json:"source"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	ManagedBy string `json:"managedBy,omitempty"`
	Kind      Kind   `json:"kind"`
	// Version is the one in the image's tag, empty where the tag has none.
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
	// Args are those of the entrypoint or of the daemon.
	Args []string `json:"args,omitempty"`
	// Keys are the configuration keys that are in effect.
	Keys []Key `json:"keys,omitempty"`
	// Primary is how the primary network is chosen.
	Primary string `json:"primary"`
	// Distribution is the one that the paths, or else the primary network, speak for, and
	// Because what spoke.
	Distribution string `json:"distribution"`
	Because      string `json:"because"`
	// Mounts are the folders of the node that the main container sees.
	Mounts      []Mount `json:"mounts,omitempty"`
	MemoryLimit string  `json:"memoryLimit,omitempty"`
	Probes      []Probe `json:"probes,omitempty"`
}

// Key is one configuration key and where it was found. The value is as it was written.
type Key struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	From  string          `json:"from"`
}

// Mount is a folder of the node in a container.
type Mount struct {
	Host string `json:"host"`
	Pod  string `json:"pod"`
}

// Probe is one probe of the main container.
type Probe struct {
	Probe string `json:"probe"`
	Runs  string `json:"runs"`
}

// Becomes is the installation that takes the place.
type Becomes struct {
	Kind  Kind   `json:"kind"`
	Image string `json:"image"`
	// Base is the folder below deploy/ that Files build on.
	Base         string         `json:"base"`
	DaemonConfig cniconf.Object `json:"daemonConfig"`
	MemoryLimit  string         `json:"memoryLimit"`
	// Files are a kustomization and what belongs to it.
	Files []File `json:"files"`
	// Chart is the same with Helm; absent where the chart has no value for a part.
	Chart *Chart `json:"chart,omitempty"`
	Steps []Step `json:"steps"`
}

// File is one file to write.
type File struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// Chart is what deploy/chart is given.
type Chart struct {
	// Distribution is a values file of the chart, empty for none, and Values go over it.
	Distribution string `json:"distribution,omitempty"`
	Values       string `json:"values"`
}

// Step is a step of the way: commands, and what they mean for pods.
type Step struct {
	Step     string   `json:"step"`
	Commands []string `json:"commands"`
	Pods     string   `json:"pods"`
}
