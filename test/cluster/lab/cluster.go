package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Config says where a cluster is, and of what it is made.
type Config struct {
	State  string    // folder of the cluster; two of them are two clusters
	Cache  string    // folder of built programs, which all clusters share
	Report io.Writer // is told of stages, and how long they took
}

// DefaultConfig is in the user's cache folder, unless MULTUS_CLUSTER_STATE and
// MULTUS_CLUSTER_CACHE name other folders.
func DefaultConfig(getenv func(string) string) (Config, error) {
	c := Config{State: getenv("MULTUS_CLUSTER_STATE"), Cache: getenv("MULTUS_CLUSTER_CACHE"), Report: os.Stderr}
	if c.State != "" && c.Cache != "" {
		return c, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return Config{}, fmt.Errorf("set MULTUS_CLUSTER_STATE and MULTUS_CLUSTER_CACHE: %w", err)
	}
	if c.State == "" {
		c.State = filepath.Join(user, "multus-cluster", "state")
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(user, "multus-cluster", "built")
	}
	return c, nil
}

// Options are what can be chosen of a cluster.
type Options struct {
	Nodes   int // 1 to 9
	Runtime Runtime
}

func (o Options) validate() error {
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: 1 to %d are possible", o.Nodes, maxNodes)
	}
	return o.Runtime.validate()
}

// Cluster is a cluster, up or not.
type Cluster struct {
	config   Config
	id       string // names its cgroups
	settings settings
}

// settings of a cluster that is up, in the file that is written when it is so far.
type settings struct {
	Options
	Tools tools
	Port  int // of the API server, on 127.0.0.1 of the whole machine
}

// Open finds the cluster of the folder, if there is one.
func Open(config Config) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster's namespaces need root: use sudo")
	}
	for _, dir := range []*string{&config.State, &config.Cache} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", *dir, err)
		}
		if strings.ContainsAny(abs, ",:\\") {
			return nil, fmt.Errorf("%s: an overlay cannot have a comma, colon or backslash in its path", abs)
		}
		*dir = abs
	}
	sum := sha256.Sum256([]byte(config.State))
	c := &Cluster{config: config, id: "multus-cluster-" + hex.EncodeToString(sum[:4])}
	return c, c.readSettings()
}

// readSettings leaves them zero where no cluster is up.
func (c *Cluster) readSettings() error {
	text, err := os.ReadFile(c.file("cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		c.settings = settings{}
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c.settings)
	}
	if err != nil {
		return fmt.Errorf("the cluster's settings: %w", err)
	}
	return nil
}

func (c *Cluster) file(name string) string { return filepath.Join(c.config.State, name) }

func (c *Cluster) pki() pki { return pki(c.file("pki")) }

// Kubeconfig is the file with which the whole machine reaches the cluster as its
// administrator.
func (c *Cluster) Kubeconfig() string { return c.file("kubeconfig") }

// Kubectl is the program of the cluster's version.
func (c *Cluster) Kubectl() string { return filepath.Join(c.settings.Tools.Kube, "kubectl") }

// Options of the cluster; zero where none is up.
func (c *Cluster) Options() Options { return c.settings.Options }

// ControlPlane is the machine with etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler.
func (c *Cluster) ControlPlane() Machine { return Machine{Name: "control-plane", cluster: c} }

// Node is the machine node<n>, from 1, with containerd, kubelet and kube-proxy.
func (c *Cluster) Node(n int) Machine {
	return Machine{Name: fmt.Sprint("node", n), cluster: c, number: n}
}

// Nodes are all of them, whether they run or not.
func (c *Cluster) Nodes() []Machine {
	var nodes []Machine
	for n := 1; n <= c.settings.Nodes; n++ {
		nodes = append(nodes, c.Node(n))
	}
	return nodes
}

// Machines are the control plane and the nodes.
func (c *Cluster) Machines() []Machine {
	return append([]Machine{c.ControlPlane()}, c.Nodes()...)
}

// Machine finds one by its name.
func (c *Cluster) Machine(name string) (Machine, error) {
	all := c.Machines()
	i := slices.IndexFunc(all, func(m Machine) bool { return m.Name == name })
	if i < 0 || c.settings.Nodes == 0 {
		return Machine{}, fmt.Errorf("there is no machine %q: the cluster has control-plane and %d nodes, from node1", name, c.settings.Nodes)
	}
	return all[i], nil
}

// report tells of a stage.
func (c *Cluster) report(format string, args ...any) {
	fmt.Fprintf(c.config.Report, "cluster: "+format+"\n", args...)
}

// CopyLogs copies the logs of all machines into a folder for each, also those of a
// cluster that never came up.
func (c *Cluster) CopyLogs(ctx context.Context, to string) error {
	folders, err := filepath.Glob(c.file("*/log"))
	if err != nil {
		return fmt.Errorf("the logs: %w", err)
	}
	for _, logs := range folders {
		machine := filepath.Join(to, filepath.Base(filepath.Dir(logs)))
		if err := os.MkdirAll(machine, 0o755); err != nil {
			return err
		}
		if err := runQuietly(exec.CommandContext(ctx, "cp", "-r", logs+"/.", machine)); err != nil {
			return fmt.Errorf("the logs: %w", err)
		}
	}
	return nil
}
