// Package thin is the planner of the thin plugin: the daemon's work in the
// plugin's own process, for one pod, with an API client of its own. Without an API
// (no kubeconfig, not in a cluster) there are the node's own networks alone; a pod
// that selects others is refused.
package thin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/devices"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/manifest"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/shim"
)

// statusPatience is how long an ADD waits for its status to be written.
const statusPatience = 5 * time.Second

// Cluster is where the API is when the configuration names no kubeconfig: the
// values of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
type Cluster struct{ Host, Port string }

// cluster is what the planner asks of the cluster: package kube's client, or a folder of YAML.
type cluster interface {
	gather.Pods
	gather.Networks
	PatchStatus(ctx context.Context, pod plan.Pod, text string) error
	Added(pod plan.Pod, ifName string, ips []string, network string)
	Refused(pod plan.Pod, message string)
}

// direct is the API without caches. Its events wait in a queue until close.
type direct struct {
	*kube.Client
	*kube.Events
}

// close sends the events, within the little time that a queue gets to empty itself.
func (d *direct) close() {
	d.Flush()
	d.Close()
}

type planner struct {
	cluster cluster // nil without an API
	gather  gather.Gatherer
	log     *slog.Logger
}

// Planner makes the planner of one invocation, for shim.Plugin.
func (c Cluster) Planner(cfg *config.Config, log *slog.Logger) (shim.Planner, func(), error) {
	p := &planner{log: log, gather: gather.Gatherer{Files: gather.OS{}, Devices: devices.New(devices.DefaultSocket, devices.DefaultCheckpoint)}}
	cluster, closeAll, err := c.connect(cfg, log)
	if errors.Is(err, kube.ErrNoCluster) {
		return p, func() {}, nil
	}
	if err != nil {
		if !errors.Is(err, gather.ErrNotYet) { // it may be mended
			err = fmt.Errorf("%w: %w", gather.ErrNotYet, err)
		}
		cluster, closeAll = unreachable{err}, func() {}
	}
	p.cluster, p.gather.Pods, p.gather.Networks = cluster, cluster, cluster
	if api, ok := cluster.(*direct); ok {
		p.gather.Claims = kube.Claims{Client: api.Client}
	}
	return p, closeAll, nil
}

// connect finds the API, or the folder that stands for it.
func (c Cluster) connect(cfg *config.Config, log *slog.Logger) (cluster, func(), error) {
	if manifest.IsFolder(cfg.Kubeconfig) {
		folder, warnings, err := manifest.Load(cfg.Kubeconfig)
		for _, w := range warnings {
			log.Warn(string(w))
		}
		return folder, func() {}, err
	}
	client, err := kube.Connect(kube.Options{Kubeconfig: cfg.Kubeconfig, Host: c.Host, Port: c.Port, UserAgent: "multus"})
	if err != nil {
		return nil, nil, err
	}
	d := &direct{client, client.Events(log)}
	return d, d.close, nil
}

// Plan is shim.Planner's.
func (p *planner) Plan(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
	cfg, _, err := config.Parse(req.Config)
	if err != nil {
		return nil, api.WithCode(types.ErrInvalidNetworkConfig, err)
	}
	cfg.Hotplug = false // nobody is there to attach an optional network late
	inv := shim.Invocation{ContainerID: req.ContainerID, NetNS: req.NetNS, Interface: req.Interface, Args: req.Args}
	call, err := inv.Call(req.RuntimeConfig)
	if err != nil {
		return nil, err
	}
	planned, err := p.gather.Plan(ctx, cfg, call, shim.Annotations(req.RuntimeConfig))
	if refusal := plan.Refused(err); refusal != nil && p.cluster != nil {
		p.cluster.Refused(refusal.Pod, refusal.Error())
	}
	return planned, err
}

// Report is shim.Planner's: it writes the status, for up to five seconds.
func (p *planner) Report(ctx context.Context, r api.Report) error {
	if p.cluster == nil || r.Verb != "ADD" || r.Error != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	if !r.Plain {
		for _, a := range r.Attachments {
			p.cluster.Added(plan.Pod(r.Pod), a.Interface, a.Addresses, a.Network)
		}
	}
	if err := p.cluster.PatchStatus(ctx, p.target(ctx, r), netspec.FormatStatus(shim.Entries(r))); err != nil {
		return fmt.Errorf("pod %s/%s: network-status: %w", r.Pod.Namespace, r.Pod.Name, err)
	}
	return nil
}

// target is the API's pod, which for a static pod has a UID of its own.
func (p *planner) target(ctx context.Context, r api.Report) plan.Pod {
	pod := plan.Pod(r.Pod)
	if live, err := p.cluster.Live(ctx, pod.Namespace, pod.Name); err == nil && live.Static {
		pod.UID = live.UID
	}
	return pod
}

// unreachable stands for an API client that cannot be made now: what needs the API is
// told to come again.
type unreachable struct{ err error }

// Cached is gather.Pods's.
func (unreachable) Cached(string, string) (gather.Pod, bool) { return gather.Pod{}, false }

// Live is gather.Pods's.
func (u unreachable) Live(context.Context, string, string) (gather.Pod, error) {
	return gather.Pod{}, u.err
}

// Network is gather.Networks's.
func (u unreachable) Network(context.Context, netspec.Ref) (plan.NAD, error) {
	return plan.NAD{}, u.err
}

// PatchStatus writes nothing.
func (u unreachable) PatchStatus(context.Context, plan.Pod, string) error { return u.err }

// Added tells nobody.
func (unreachable) Added(plan.Pod, string, []string, string) {}

// Refused tells nobody.
func (unreachable) Refused(plan.Pod, string) {}
