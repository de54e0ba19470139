package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

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
	if _, err := c.machineCgroups(""); err != nil { // a machine could not start; better said before a long build
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
	unlock, err := c.lock(ctx)
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
	if err := os.WriteFile(c.file("cluster.json.new"), text, 0o600); err != nil {
		return err
	}
	return os.Rename(c.file("cluster.json.new"), c.file("cluster.json"))
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

// Down takes the cluster down, and removes all that it was, logs too.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := c.lock(ctx)
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
	names := []string{"cluster.json", "cluster.json.new", "kubeconfig", "cgroups", "pki", c.ControlPlane().Name}
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

// lock keeps other processes from changing the cluster meanwhile, and reads what they
// have made of it. One that has just been killed may take a moment to be gone.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	var dir *os.File
	err = poll(ctx, 5*time.Second, func(context.Context) error {
		if err := os.MkdirAll(c.config.State, 0o700); err != nil {
			return finalError{err}
		}
		if dir, err = os.Open(c.config.State); err != nil {
			return err
		}
		if err := lockDir(dir); err != nil {
			return errors.Join(err, dir.Close())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the cluster's folder, where another up or down may be at work: %w", err)
	}
	if err := c.readSettings(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { dir.Close() }, nil
}

var errMoved = errors.New("it has been removed meanwhile")

// lockDir locks a folder, if it is still the one of its name.
func lockDir(dir *os.File) error {
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("locking %s: %w", dir.Name(), err)
	}
	locked, err := dir.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(dir.Name()); err != nil || !os.SameFile(locked, named) {
		return errors.Join(fmt.Errorf("locking %s: %w", dir.Name(), errMoved), err)
	}
	return nil
}
