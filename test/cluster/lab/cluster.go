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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
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
	text, err := os.ReadFile(c.file("cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c.settings)
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster's settings: %w", err)
	}
	return c, nil
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

// Build fills the cache for a runtime, and installs missing packages. The checkout is
// found from the working folder upwards.
func (c *Cluster) Build(ctx context.Context, r Runtime) error {
	_, err := c.build(ctx, r)
	return err
}

func (c *Cluster) build(ctx context.Context, r Runtime) (tools, error) {
	if err := r.validate(); err != nil {
		return tools{}, err
	}
	source, err := findCheckout()
	if err != nil {
		return tools{}, err
	}
	return cache{dir: c.config.Cache, source: source, report: c.report}.tools(ctx, r)
}

// findCheckout is the nearest folder upwards that has our modules.
func findCheckout() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, hyperkube, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of the project: its programs are built from there", here)
		}
	}
}

// Up brings the cluster up, whatever was there: nothing, what a killed run has left, or
// the same cluster with machines that are off. It returns when all nodes are Ready.
func (c *Cluster) Up(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	t, err := c.build(ctx, o.Runtime)
	if err != nil {
		return err
	}
	begin := time.Now()
	fresh := c.settings.Nodes == 0
	if fresh {
		if err := c.create(ctx, o, t); err != nil {
			return err
		}
	} else if have := c.settings; have.Options != o || have.Tools != t {
		return fmt.Errorf("a cluster with %d nodes, runtime %s and programs of %s is up: take it down first", have.Nodes, have.Runtime, have.Tools.Kube)
	}
	if err := c.startMissing(ctx, begin); err != nil {
		return err
	}
	if fresh {
		if err := c.loadBase(ctx); err != nil {
			return err
		}
	}
	if err := c.waitUp(ctx, begin); err != nil {
		return fmt.Errorf("%w (logs: %s/*/log)", err, c.config.State)
	}
	if fresh {
		return c.save()
	}
	return nil
}

// create makes the folder anew.
func (c *Cluster) create(ctx context.Context, o Options, t tools) error {
	if err := c.clear(ctx); err != nil {
		return err
	}
	c.settings = settings{Options: o, Tools: t}
	addresses := map[string]string{}
	for _, node := range c.Nodes() {
		addresses[node.Name] = nodeIP(node.number)
	}
	if err := c.pki().create(addresses); err != nil {
		return err
	}
	for _, user := range []string{"controller-manager", "scheduler"} {
		text, err := c.pki().kubeconfig(user, apiServer)
		if err == nil {
			err = os.WriteFile(c.pki().path(user+".kubeconfig"), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// save marks the cluster as complete.
func (c *Cluster) save() error {
	text, err := json.MarshalIndent(c.settings, "", "  ")
	if err != nil {
		return fmt.Errorf("the cluster's settings: %w", err)
	}
	return os.WriteFile(c.file("cluster.json"), text, 0o600)
}

// startMissing starts machines that are off or were started half-way, and programs
// that were stopped.
func (c *Cluster) startMissing(ctx context.Context, begin time.Time) error {
	for _, m := range c.Machines() {
		programs, err := m.Programs(ctx)
		halfway := slices.ContainsFunc(programs, func(p Program) bool { return !p.Wanted && p.Starts == 0 })
		if err != nil || halfway {
			err = m.Reboot(ctx, BootOptions{})
		} else {
			err = m.startPrograms(ctx, programs)
		}
		if err != nil {
			return err
		}
	}
	c.stage(begin, "machines started")
	return nil
}

func (c *Cluster) stage(begin time.Time, what string) {
	c.report("%5.1f s  %s", time.Since(begin).Seconds(), what)
}

// listen opens the API server's port on this machine and writes the kubeconfig for it.
func (c *Cluster) listen() (*os.File, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.settings.Port})
	if err != nil {
		return nil, fmt.Errorf("the API server's port: %w", err)
	}
	defer func() { _ = listener.Close() }() // the file is a copy
	c.settings.Port = listener.Addr().(*net.TCPAddr).Port
	text, err := c.pki().kubeconfig("admin", "https://"+listener.Addr().String())
	if err == nil {
		err = os.WriteFile(c.Kubeconfig(), text, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return listener.File()
}

// Load puts image archives on every node that runs. An image under a name that is
// there already serves the containers that are made from then on.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		text, err := os.ReadFile(archive)
		if err == nil {
			err = c.load(ctx, string(text))
		}
		if err != nil {
			return fmt.Errorf("loading %s: %w", archive, err)
		}
	}
	return nil
}

// loadBase loads the images that every node has.
func (c *Cluster) loadBase(ctx context.Context) error {
	base, err := c.settings.Tools.baseImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range base {
		var archive strings.Builder
		if err := image.Write(&archive); err != nil {
			return err
		}
		if err := c.load(ctx, archive.String()); err != nil {
			return fmt.Errorf("loading %s: %w", image.Ref, err)
		}
	}
	return nil
}

func (c *Cluster) load(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.Nodes() {
		if node.Running() {
			group.Go(func() error {
				err := poll(ctx, time.Minute, func(ctx context.Context) error {
					_, err := node.Exec(ctx, "ctr", "version")
					return err
				})
				if err == nil {
					_, err = node.run(ctx, strings.NewReader(archive), "ctr", "-n", "k8s.io", "images", "import", "-")
				}
				return err
			})
		}
	}
	return group.Wait()
}

// Down takes the cluster down, and removes all that it was, logs too.
func (c *Cluster) Down(ctx context.Context) error {
	if _, err := os.Stat(c.config.State); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.clear(ctx); err != nil {
		return err
	}
	return os.Remove(c.config.State)
}

// clear stops every machine of the folder and empties it. It asks the folder and the
// processes, not the settings, which a killed run has not written.
func (c *Cluster) clear(ctx context.Context) error {
	c.settings = settings{}
	machines, err := firstProcesses("/proc", c.config.State)
	if err != nil {
		return err
	}
	for name, pid := range machines {
		if err := killTree(ctx, pid); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
	}
	if err := c.removeCgroups(ctx, ""); err != nil {
		return err
	}
	names := []string{"cluster.json", "kubeconfig", "cgroups", "pki", c.ControlPlane().Name}
	for n := 1; n <= maxNodes; n++ {
		names = append(names, c.Node(n).Name)
	}
	for _, name := range names { // of our own only: a wrong folder may have been given
		if err := os.RemoveAll(c.file(name)); err != nil {
			return err
		}
	}
	return nil
}

// lock keeps other processes from changing the cluster meanwhile.
func (c *Cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.config.State, 0o700); err != nil {
		return nil, fmt.Errorf("the cluster's folder: %w", err)
	}
	dir, err := os.Open(c.config.State)
	if err != nil {
		return nil, fmt.Errorf("the cluster's folder: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another up or down is at work: %w", c.config.State, err), dir.Close())
	}
	return func() { dir.Close() }, nil
}

// record notes cgroups before they are made, so that they are found again.
func (c *Cluster) record(groups []cgroup) error {
	known, err := c.recorded()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if !slices.Contains(known, g.Dir) {
			known = append(known, g.Dir)
		}
	}
	return os.WriteFile(c.file("cgroups"), []byte(strings.Join(known, "\n")), 0o600)
}

func (c *Cluster) recorded() ([]string, error) {
	text, err := os.ReadFile(c.file("cgroups"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.Fields(string(text)), err
}

// removeCgroups removes those of one machine, or with "" all.
func (c *Cluster) removeCgroups(ctx context.Context, machine string) error {
	dirs, err := c.recorded()
	for _, dir := range dirs {
		if machine == "" || filepath.Base(dir) == c.id+"-"+machine {
			err = errors.Join(err, cgroup{Dir: dir}.remove(ctx))
		}
	}
	return err
}

// CopyLogs copies the logs of all machines into a folder for each.
func (c *Cluster) CopyLogs(ctx context.Context, to string) error {
	for _, m := range c.Machines() {
		if err := os.MkdirAll(filepath.Join(to, m.Name), 0o755); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "cp", "-r", m.Logs()+"/.", filepath.Join(to, m.Name))
		if err := runQuietly(cmd); err != nil {
			return fmt.Errorf("the logs of %s: %w", m.Name, err)
		}
	}
	return nil
}
