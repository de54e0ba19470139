package trial

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netns"
)

// Options choose the programs of a node.
type Options struct {
	// Bin is the folder of multus-daemon, multus-shim and multus; Plugins are those of
	// the delegates.
	Bin     string
	Plugins []string
	// Thin takes the thin plugin and no daemon.
	Thin bool
}

func (o Options) check() error {
	programs := []string{"multus-daemon", "multus-shim"}
	if o.Thin {
		programs = []string{"multus"}
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return fmt.Errorf("multusctl needs %s in its own folder; 'make build' puts it there: %w", name, err)
		}
	}
	for _, dir := range o.Plugins {
		if _, err := os.ReadDir(dir); err != nil {
			return fmt.Errorf("CNI plugins are looked for in %s; 'make plugins' builds the reference plugins, and --cni-path names others: %w", dir, err)
		}
	}
	return nil
}

// Node is a node of one's own, up and running.
type Node struct {
	layout
	Options
	folder  *Folder
	daemon  *process // nil for the thin plugin
	runtime *runtime
	links   []string // before any pod was attached
	started []Pod
}

// Start brings the node up, after Enter. After an error the process has to end, and
// with it what was started.
func Start(ctx context.Context, f *Folder, o Options) (*Node, error) {
	n := &Node{layout: layout{workDir}, Options: o, folder: f}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := n.write(f, n.settings(f, o.Plugins[0])); err != nil {
		return nil, err
	}
	if err := f.nodeLinks(); err != nil {
		return nil, err
	}
	var err error
	if n.links, err = linkNames(); err != nil {
		return nil, err
	}
	if o.Thin {
		err = n.writeThin(f)
	} else {
		n.daemon, err = n.startDaemon(ctx)
	}
	if err != nil {
		return nil, err
	}
	n.runtime, err = n.newRuntime()
	return n, err
}

// writeThin writes what the thin installation generates.
func (n *Node) writeThin(f *Folder) error {
	o := n.settings(f, n.Plugins[0])
	if _, given := o.Get("clusterNetwork"); !given {
		o = o.With("clusterNetwork", cniconf.Quote(n.primary(f)))
	}
	if _, given := o.Get("cniVersion"); !given {
		o = o.With("cniVersion", cniconf.Quote(f.primary.CNIVersion()))
	}
	o = o.With("name", cniconf.Quote(config.DefaultNetworkName)).With("type", cniconf.Quote("multus")).
		With("capabilities", cniconf.Quote(map[string]bool{config.PodAnnotationsCapability: true}))
	return os.WriteFile(n.pluginConf(), indented(o.Bytes()), 0o600)
}

// sandbox is the pod sandbox of a pod: as a runtime names it, but the same each time.
func sandbox(pod gather.Pod) Pod {
	return Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ContainerID: fmt.Sprintf("%x", sha256.Sum256([]byte(pod.UID))),
		NetNS:       filepath.Join(netnsDir, pod.Namespace+"_"+pod.Name),
	}
}

// Stop takes down what Attach made and ends the daemon. left is what was not given
// back, one line each: failed DELs, interfaces, addresses, records.
func (n *Node) Stop(ctx context.Context) (left []string, err error) {
	for _, pod := range slices.Backward(n.started) {
		left = append(left, n.detach(ctx, pod)...)
	}
	n.started = nil
	if n.daemon != nil {
		err = n.daemon.stop()
		n.daemon = nil
	}
	after, listErr := linkNames()
	for _, name := range after {
		if !slices.Contains(n.links, name) {
			left = append(left, "interface "+name+" on the node")
		}
	}
	for _, dir := range append([]string{cniState}, n.folder.strings("ipam", "dataDir")...) {
		left = append(left, remains(dir)...)
	}
	slices.Sort(left)
	return slices.Compact(left), errors.Join(err, listErr)
}

func (n *Node) detach(ctx context.Context, pod Pod) (left []string) {
	who := "pod " + pod.String()
	if err := n.runtime.del(ctx, pod); err != nil {
		left = append(left, fmt.Sprintf("%s: DEL: %v", who, err))
	}
	names, err := netns.New("").Interfaces(ctx, pod.NetNS)
	for _, name := range names {
		if name != "lo" {
			left = append(left, fmt.Sprintf("%s: interface %s", who, name))
		}
	}
	if err := errors.Join(err, netns.Delete(pod.NetNS)); err != nil {
		left = append(left, fmt.Sprintf("%s: %v", who, err))
	}
	return left
}

// remains lists the files that plugins keep for what is attached: leases of IPAM and
// records. What stays by design is left out: locks, and host-local's note of the last
// address.
func remains(dir string) (left []string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil || entry.Name() == ".lock" && entry.IsDir():
			return fs.SkipDir // absent: nothing is left
		case entry.IsDir() || name == "lock" || strings.HasPrefix(name, "last_reserved_ip."):
		default:
			left = append(left, "file "+path)
		}
		return nil
	})
	return left
}

// delTime is how long taking one pod down may take.
const delTime = time.Minute
