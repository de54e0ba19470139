package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/manifest"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
)

// Pod is what became of a pod. Its JSON form is stable (docs/try.md).
type Pod struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UID         string `json:"uid"`
	ContainerID string `json:"containerID"`
	NetNS       string `json:"netns"` // path on the node
	// Error is the plugin's, where the pod could not be attached. The rest is empty then.
	Error *types.Error `json:"error,omitempty"`
	// Warnings are the plan's findings that did not stop the pod, one line each.
	Warnings []string `json:"warnings,omitempty"`
	// Interfaces and Routes are what is in the pod's namespace, loopback excepted.
	Interfaces []Interface `json:"interfaces,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	// Status is the network-status annotation.
	Status json.RawMessage `json:"networkStatus,omitempty"`
	Execs  []Exec          `json:"execs,omitempty"`
}

// Interface is an interface of a pod, as the kernel has it.
type Interface struct {
	Name      string         `json:"name"`
	Network   string         `json:"network"` // of the network-status entry
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Route is a route of a pod's main table that the kernel did not make itself.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     *netip.Addr  `json:"gateway,omitempty"`
	Interface   string       `json:"interface"`
}

// Exec is a command that ran in a pod's network.
type Exec struct {
	Command  string `json:"command"`
	ExitCode int    `json:"exitCode"`
	Output   string `json:"output,omitempty"` // stdout and stderr, where they were kept
}

// String is "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// statusTime is how long the network-status of an attached pod may take.
const statusTime = 30 * time.Second

// Attach makes the pod's sandbox and attaches it. A plugin's refusal is in the Pod;
// the error is the trial's own.
func (n *Node) Attach(ctx context.Context, pod gather.Pod) (Pod, error) {
	p := sandbox(pod)
	if _, err := netns.Create(netnsDir, pod.Namespace+"_"+pod.Name); err != nil {
		return p, fmt.Errorf("pod %s: %w", p, err)
	}
	n.started = append(n.started, p)
	if err := netns.Do(p.NetNS, func() error { return up("lo") }); err != nil {
		return p, fmt.Errorf("pod %s: %w", p, err)
	}
	if err := n.runtime.add(ctx, p); err != nil {
		p.Error = refusal(err)
		return p, ctx.Err()
	}
	return p, n.observe(ctx, &p)
}

// refusal keeps the plugin's code and words, without what libcni puts around them.
func refusal(err error) *types.Error {
	var plugin *types.Error
	if errors.As(err, &plugin) {
		return plugin
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

func hasAddress(result types.Result) error {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return err
	}
	if len(r.IPs) == 0 {
		return errNoAddress
	}
	return nil
}

// observe reads the pod's namespace and its network-status.
func (n *Node) observe(ctx context.Context, p *Pod) error {
	text, err := n.status(ctx, *p)
	if err != nil {
		return fmt.Errorf("pod %s: its network-status: %w", p, err)
	}
	entries, err := netspec.ParseStatus(string(text))
	if err != nil {
		return fmt.Errorf("pod %s: %w", p, err)
	}
	p.Status = text
	rec, err := ledger.New(ledgerDir, ledger.BootID()).Load(p.ContainerID)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p, err)
	}
	p.Warnings = rec.Plan.Warnings
	links := netns.New("")
	names, err := links.Interfaces(ctx, p.NetNS)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p, err)
	}
	for _, name := range names {
		facts, err := links.Facts(ctx, p.NetNS, name)
		if err != nil {
			return fmt.Errorf("pod %s: %w", p, err)
		}
		for _, r := range facts.Routes {
			route := Route{Destination: r.Dst, Interface: name}
			if r.GW.IsValid() {
				route.Gateway = &r.GW
			}
			p.Routes = append(p.Routes, route)
		}
		if name == "lo" {
			continue
		}
		i := Interface{Name: name, MAC: facts.MAC, MTU: facts.MTU, Up: facts.Up, Addresses: append([]netip.Prefix{}, facts.Addresses...)}
		if at := slices.IndexFunc(entries, func(e netspec.StatusEntry) bool { return e.Interface == name }); at >= 0 {
			i.Network = entries[at].Name
		}
		p.Interfaces = append(p.Interfaces, i)
	}
	slices.SortStableFunc(p.Interfaces, func(a, b Interface) int { return cmp.Compare(order(entries, a), order(entries, b)) })
	return nil
}

// order is that of the network-status; what is not in it comes last.
func order(entries []netspec.StatusEntry, i Interface) int {
	if at := slices.IndexFunc(entries, func(e netspec.StatusEntry) bool { return e.Interface == i.Name }); at >= 0 {
		return at
	}
	return len(entries)
}

// status waits for the annotation, which for a plain pod comes after the ADD.
func (n *Node) status(ctx context.Context, p Pod) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, statusTime, fmt.Errorf("not written within %s", statusTime))
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		text, err := os.ReadFile(manifest.StatusFile(n.cluster(), p.Namespace, p.Name))
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Exec runs a shell command in the network namespace of an attached pod. A command
// that fails is no error.
func (n *Node) Exec(ctx context.Context, p Pod, command string, in io.Reader, out io.Writer) (Exec, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	err := netns.Do(p.NetNS, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return Exec{Command: command, ExitCode: exit.ExitCode()}, nil
	}
	if err != nil {
		return Exec{}, fmt.Errorf("running a command in pod %s: %w", p, err)
	}
	return Exec{Command: command}, nil
}
