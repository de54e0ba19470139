package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sync/errgroup"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/confgen"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/hotplug"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Cluster is the daemon's side of Kubernetes: package kube's, or a folder of YAML.
type Cluster interface {
	gather.Pods
	gather.Networks
	// Run keeps the caches until ctx ends.
	Run(ctx context.Context) error
	// Pods are the pods of this node in the caches.
	Pods() []gather.Pod
	// LivePods are the pods of this node, and Life is how one of them runs, read from the
	// API now. Life wraps gather.ErrNotFound.
	LivePods(ctx context.Context) ([]gather.Pod, error)
	Life(ctx context.Context, pod plan.Pod) (audit.Life, error)
	// Problem says why the caches cannot be relied on yet; empty when they can.
	Problem() string
	// LastSync is the last moment at which the caches were known to follow the API; zero
	// before the first.
	LastSync() time.Time
	// PatchStatus writes the network-status annotation of the pod with this UID, and
	// retries until ctx ends. An error before that is final.
	PatchStatus(ctx context.Context, pod plan.Pod, text string) error
	// Added and Refused record events on the pod, without waiting: an interface was
	// attached; its request for networks is wrong.
	Added(pod plan.Pod, ifName string, ips []string, network string)
	Refused(pod plan.Pod, message string)
	// Note and Warn record other events on the pod, without waiting.
	Note(pod plan.Pod, reason, message string)
	Warn(pod plan.Pod, reason, message string)
	// ReportNetworks says in the pod's conditions in what its networks differ from those
	// that it selects; empty where they do not.
	ReportNetworks(ctx context.Context, pod plan.Pod, differs string) error
	// Evict ends a pod, if its disruption budget allows.
	Evict(ctx context.Context, pod plan.Pod) error
	// Disturbed records an event on the node: something works against the generated
	// configuration.
	Disturbed(message string)
	hotplug.Cluster
	// Follow has pod called for each pod that may have changed or gone, and network when
	// some definition may have. It is called once, before Run; neither blocks.
	Follow(pod func(namespace, name string), network func())
}

// Options are what a Daemon is made of.
type Options struct {
	Config *config.Config
	// ConfigFile is the text that Config was parsed from: it is laid over the
	// configuration of every request (contract 1.3).
	ConfigFile []byte
	Cluster    Cluster
	Devices    gather.Devices
	// Claims finds and tells of devices of resource claims; nil without an API server.
	Claims Claims
	// Reviewer judges callers of the metrics port; nil without an API server.
	Reviewer Reviewer
	Log      *slog.Logger
	// Environ is the daemon's environment, of which delegateEnv names parts, and which
	// delegates get that the daemon runs itself.
	Environ []string
	BootID  string
	// Generate is off where something else makes the plugin's configuration.
	Generate bool
}

// Daemon serves the plugins of one node.
type Daemon struct {
	Options
	place     api.Place
	gatherer  gather.Gatherer
	admission *admission
	publisher *publisher
	metrics   *metrics
	guard     *guard // nil where the metrics are for everybody
	pair      *pair  // nil where they are served without TLS
	ledger    *ledger.Ledger
	hotplug   *hotplug.Reconciler // nil without the key
	watcher   *confgen.Watcher    // nil without Generate
	draining  atomic.Bool
	// elsewhere is a plugin's ledger folder that is not ours; it makes us unready. agreed
	// says that some plugin's was ours.
	elsewhere atomic.Pointer[api.Place]
	agreed    atomic.Bool
}

// New puts a daemon together. Errors are the configuration's.
func New(o Options) (*Daemon, error) {
	records := ledger.New(o.Config.CNIDir, o.BootID)
	place, err := records.Place()
	if err != nil {
		return nil, fmt.Errorf("key \"cniDir\": %w", err)
	}
	d := &Daemon{
		Options:   o,
		place:     place,
		gatherer:  gather.Gatherer{Pods: o.Cluster, Networks: o.Cluster, Devices: o.Devices, Files: gather.OS{}},
		admission: newAdmission(limit(o.Config)),
		metrics:   newMetrics(),
		ledger:    records,
	}
	if d.pair, err = newPair(o.Config.MetricsTLS, o.Log); err != nil {
		return nil, err
	}
	if d.guard, err = newGuard(o.Config, o.Reviewer, o.Log); err != nil {
		return nil, err
	}
	d.metrics.watch(d)
	d.publisher = &publisher{cluster: o.Cluster, log: o.Log, metrics: d.metrics, gone: d.gone, load: records.Load, pending: map[string]*publication{}, writing: map[string]*publication{}}
	d.followPods()
	if o.Claims != nil { // a nil Claims must not become a gather.Devices that is not nil
		d.gatherer.Claims = o.Claims
		if o.Config.ClaimStatus {
			d.publisher.claims = o.Claims
		}
	}
	if !o.Generate {
		return d, nil
	}
	if d.watcher, err = confgen.New(o.Config, &configObserver{confgen.LogObserver{Log: o.Log}, d.metrics, o.Cluster}, d.clusterNetwork); err != nil {
		return nil, err
	}
	return d, nil
}

// limit is how many annotated ADDs run at once. Delegates are processes that wait
// for the kernel and for their IPAM more than they compute; below this many a
// burst gains nothing, above it the node only swaps.
func limit(cfg *config.Config) int {
	if cfg.ConnectionLimit > 0 {
		return cfg.ConnectionLimit
	}
	return max(8, 4*runtime.NumCPU())
}

// Run serves until ctx ends, then drains: readiness goes first, new ADDs are told to
// come again, ADDs in flight get drainTimeout to report.
func (d *Daemon) Run(ctx context.Context) error {
	socket, err := listen(d.Config.SocketDir)
	if err != nil {
		return err
	}
	defer socket.Close()
	server := d.socketServer()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return d.Cluster.Run(working) })
	d.publisher.start(working)
	group.Go(func() error { return d.publisher.run(working, d.recorded) })
	d.care(working, group)
	if d.watcher != nil {
		group.Go(func() error { return d.watcher.Run(working) })
	}
	if d.hotplug != nil {
		group.Go(func() error { d.hotplug.Run(working); return nil })
	}
	group.Go(func() error { return serve(server, socket) })
	group.Go(func() error { return d.keepSocket(working, group, server, socket) })
	tcp, err := d.serveMetrics(working, group)
	if err != nil {
		stop()
		return errors.Join(err, server.Close(), group.Wait())
	}
	d.Log.Info("serving", "socket", socket.path, "admitted at once", d.admission.limit)
	select {
	case <-ctx.Done():
	case <-working.Done():
	}
	d.drain(context.WithoutCancel(ctx), server, tcp)
	stop()
	return group.Wait()
}

// keepSocket puts the socket back when another program has removed it: a daemon of
// Multus v4 wipes the whole folder at its start, and so does a clean-up of /run. A
// socket that another daemon has put there is left to it.
func (d *Daemon) keepSocket(ctx context.Context, group *errgroup.Group, server *http.Server, socket *socketListener) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if d.draining.Load() || !socket.gone() {
			continue
		}
		again, err := listen(d.Config.SocketDir)
		if err != nil {
			d.Log.Error("the socket was removed and cannot be put back", "error", err)
			continue
		}
		d.Log.Error("another program removed the socket, which is back", "socket", again.path)
		defer again.Close() //nolint:revive // each is kept until the end, with the calls it took
		socket = again
		group.Go(func() error { return serve(server, again) })
	}
}

func serve(server *http.Server, l net.Listener) error {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	}
	return nil
}

// serveMetrics opens the metrics port, where one is set (contract 1.11).
func (d *Daemon) serveMetrics(ctx context.Context, group *errgroup.Group) (io.Closer, error) {
	if d.Config.MetricsPort == 0 {
		return io.NopCloser(nil), nil
	}
	address := net.JoinHostPort(d.Config.MetricsAddress, strconv.Itoa(d.Config.MetricsPort))
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("key \"metricsPort\": %w", err)
	}
	server := d.httpServer(d.metricsHandler())
	group.Go(func() error { return serve(server, d.pair.secure(l)) })
	if d.guard != nil {
		group.Go(func() error { d.guard.check(ctx); return nil })
	}
	return server, nil
}

func (d *Daemon) drain(ctx context.Context, server *http.Server, tcp io.Closer) {
	d.draining.Store(true)
	d.Log.Info("draining", "in flight", d.admission.inFlight())
	ctx, cancel := context.WithTimeout(ctx, d.Config.DrainTimeout)
	defer cancel()
	d.admission.idle(ctx)
	if err := errors.Join(server.Shutdown(ctx), tcp.Close()); err != nil {
		d.Log.Warn("not all callers were served before the end", "error", err)
		_ = server.Close() // they come again
	}
}

// notReady says why the daemon is not ready; empty when it is.
func (d *Daemon) notReady() string {
	if d.draining.Load() {
		return "shutting down"
	}
	if problem := d.Cluster.Problem(); problem != "" {
		return problem
	}
	if place := d.elsewhere.Load(); place != nil && !sameFolder(*place, d.here()) {
		return fmt.Sprintf("the plugin keeps its records in %s on the host, which is not what is mounted at %s here: mount the host's folder there", place.Path, d.place.Path)
	}
	if d.watcher != nil {
		if state := d.watcher.State(); !state.Ready {
			return state.Why
		}
	}
	return ""
}

// planConfig is the configuration that a request is planned with: the caller's,
// with the daemon's file over it, and the primary network that the daemon chose.
// Plugins that waited for the socket are there before the first look at the node's files.
func (d *Daemon) planConfig(ctx context.Context, caller json.RawMessage) (*config.Config, error) {
	merged, err := config.Overlay(caller, d.ConfigFile)
	if err != nil {
		return nil, badConfig(err)
	}
	cfg, _, err := config.Parse(merged)
	if err != nil {
		return nil, badConfig(err)
	}
	cfg.Hotplug = d.attachesLate()
	if d.watcher == nil || d.Config.ClusterNetwork != "" {
		return cfg, nil
	}
	select {
	case <-d.watcher.Looked():
	case <-ctx.Done():
	}
	state := d.watcher.State()
	if !state.Ready {
		return nil, api.WithCode(types.ErrTryAgainLater, errors.New(state.Why))
	}
	if state.Choice.Name != "" { // a fixed configuration file names its own primary network
		cfg.ClusterNetwork = filepath.Join(d.Config.MultusAutoconfigDir, state.Choice.Name)
	}
	return cfg, nil
}

func badConfig(err error) error {
	return api.WithCode(types.ErrInvalidNetworkConfig, fmt.Errorf("the plugin's configuration: %w", err))
}

// clusterNetwork is the primary network that the configuration names, for the
// generated configuration: without the daemon the plugin has no API to ask.
func (d *Daemon) clusterNetwork(ctx context.Context) (*cniconf.Config, error) {
	cfg := *d.Config
	cfg.DefaultNetworks = nil
	ref := netspec.Ref{Namespace: cfg.MultusNamespace, Name: cfg.ClusterNetwork}
	if nad, err := d.Cluster.Network(ctx, ref); err == nil && nad.Annotations[netspec.AnnotationResourceName] != "" {
		return nil, nil
	}
	g := gather.Gatherer{Networks: d.Cluster, Files: gather.OS{}}
	p, err := g.Plan(ctx, &cfg, plan.Call{Interface: "eth0"}, map[string]string{})
	if err != nil {
		return nil, err
	}
	return &p.Attachments[0].Config, nil
}

// readHeaderTimeout and maxRequest bound what a caller can make the daemon hold.
const (
	readHeaderTimeout = 10 * time.Second
	maxRequest        = 4 << 20
)
