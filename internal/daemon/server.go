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
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/shim"
)

// statusPatience is how long the report of an annotated pod waits for its status.
const statusPatience = 5 * time.Second

type placeKey struct{}

// socketServer serves the API of docs/PROTOCOL.md. Each connection has a place
// among the admitted ADDs to its name, which ends with it.
func (d *Daemon) socketServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("POST "+api.PathPlan, d.counted(api.PathPlan, d.handlePlan))
	mux.Handle("POST "+api.PathReport, d.counted(api.PathReport, d.handleReport))
	mux.Handle("POST "+api.PathCNI, d.counted(api.PathCNI, d.handleCNI))
	mux.Handle("POST "+api.PathDelegate, d.counted(api.PathDelegate, d.handleDelegate))
	mux.Handle("GET "+api.PathState, d.counted(api.PathState, d.handleState))
	d.addHealth(mux)
	mux.Handle(api.PathMetrics, d.metrics.handler())
	unmatched := d.counted("NotFound", mux.ServeHTTP) // answers 404, or 405 where the method alone is wrong
	places := connPlaces{admission: d.admission, byConn: map[net.Conn]*place{}}
	server := d.httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			unmatched.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	server.ConnContext, server.ConnState = places.context, places.state
	return server
}

// httpServer is a server whose own troubles go to the daemon's log.
func (d *Daemon) httpServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelWarn)}
}

// addHealth adds the health endpoints, for GET and POST alike (contract 1.8).
func (d *Daemon) addHealth(mux *http.ServeMux) {
	mux.Handle(api.PathHealthz, d.counted(api.PathHealthz, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	mux.Handle(api.PathReadyz, d.counted(api.PathReadyz, func(w http.ResponseWriter, _ *http.Request) {
		if reason := d.notReady(); reason != "" {
			http.Error(w, reason, http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusOK)
	}))
}

// connPlaces keeps each connection's place.
type connPlaces struct {
	admission *admission
	mu        sync.Mutex
	byConn    map[net.Conn]*place
}

func (c *connPlaces) context(ctx context.Context, conn net.Conn) context.Context {
	p := &place{admit: c.admission}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byConn[conn] = p
	return context.WithValue(ctx, placeKey{}, p)
}

func (c *connPlaces) state(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	c.mu.Lock()
	p := c.byConn[conn]
	delete(c.byConn, conn)
	c.mu.Unlock()
	if p != nil {
		p.giveBack()
	}
}

func placeOf(r *http.Request) *place { return r.Context().Value(placeKey{}).(*place) }

// read decodes a request's body.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return api.WithCode(types.ErrDecodingFailure, fmt.Errorf("the request cannot be read: %w", err))
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return api.WithCode(types.ErrDecodingFailure, fmt.Errorf("the request is not what docs/PROTOCOL.md says: %w", err))
	}
	return nil
}

func (d *Daemon) handlePlan(w http.ResponseWriter, r *http.Request) {
	var req api.PlanRequest
	err := read(w, r, &req)
	if err == nil {
		var p *plan.Plan
		if p, err = d.plan(r.Context(), placeOf(r), req); err == nil {
			raw, merr := cniconf.Marshal(p)
			if err = merr; err == nil {
				api.WriteJSON(w, http.StatusOK, api.PlanResponse{Plan: raw})
				return
			}
		}
	}
	placeOf(r).giveBack()
	d.Log.Info("no plan", "sandbox", req.ContainerID, "error", err)
	api.WriteError(w, err)
}

// speaks tells whether messages of a protocol are understood: older ones are. One
// that is not given is the first.
func speaks(protocol int) error {
	switch {
	case protocol > api.Protocol:
		return fmt.Errorf("the plugin speaks protocol %d, this daemon %d: update the daemon", protocol, api.Protocol)
	case protocol < 0:
		return fmt.Errorf("there is no protocol %d: want one up to %d", protocol, api.Protocol)
	}
	return nil
}

// plan admits an ADD and plans it. A plain pod's caller does not wait in the queue.
func (d *Daemon) plan(ctx context.Context, place *place, req api.PlanRequest) (*plan.Plan, error) {
	if err := speaks(req.Protocol); err != nil {
		return nil, err
	}
	if d.draining.Load() {
		d.metrics.rejected.WithLabelValues(rejectedDraining).Inc()
		return nil, errDraining
	}
	inv := shim.Invocation{ContainerID: req.ContainerID, NetNS: req.NetNS, Interface: req.Interface, Args: req.Args}
	call, err := inv.Call(req.RuntimeConfig)
	if err != nil {
		return nil, err
	}
	d.compare(req.Ledger)
	cfg, err := d.planConfig(ctx, req.Config)
	if err != nil {
		return nil, err
	}
	if !req.Plain {
		if err := d.admit(ctx, place); err != nil {
			return nil, err
		}
	}
	p, err := d.gatherer.Plan(ctx, cfg, call, shim.Annotations(req.RuntimeConfig))
	if err != nil {
		d.refused(err)
		if req.Plain && d.selects(cfg, call) {
			err = fmt.Errorf("%w (%w)", err, api.ErrDepends)
		}
		return nil, err
	}
	p.Env = d.delegateEnv()
	return p, nil
}

var errDraining = api.WithCode(types.ErrTryAgainLater, errors.New("the Multus daemon is shutting down"))

// admit waits for a place until ctx ends. Who still waits when the daemon begins to
// drain comes again: an ADD that began now would not be over in time.
func (d *Daemon) admit(ctx context.Context, place *place) error {
	begin := time.Now()
	if err := place.take(ctx); err != nil {
		d.metrics.rejected.WithLabelValues(rejectedLeft).Inc()
		return api.WithCode(types.ErrTryAgainLater, fmt.Errorf("not admitted in time: %w", err))
	}
	if d.draining.Load() {
		place.giveBack()
		d.metrics.rejected.WithLabelValues(rejectedDraining).Inc()
		return errDraining
	}
	d.metrics.waits.Observe(time.Since(begin).Seconds())
	return nil
}

// selects tells whether a pod whose caller takes it for plain has selected networks
// meanwhile.
func (d *Daemon) selects(cfg *config.Config, call plan.Call) bool {
	id := plan.PodOf(call.Args)
	pod, ok := d.Cluster.Cached(id.Namespace, id.Name)
	return ok && (id.UID == "" || id.UID == pod.UID) && plan.Depends(cfg, pod.Subject)
}

// refused tells the pod's owner what is wrong with its request.
func (d *Daemon) refused(err error) {
	if refusal := plan.Refused(err); refusal != nil {
		d.Cluster.Refused(refusal.Pod, refusal.Error())
	}
}

// compare notices a plugin that keeps its records elsewhere than we look. Where it calls
// its folder as we call ours, or where no plugin ever named ours, the host's folder is
// not mounted here, and we are not ready. Otherwise the mount is proven, and it is the
// caller that runs with another cniDir: an older configuration, another installation, a
// person.
func (d *Daemon) compare(theirs api.Place) {
	if theirs == (api.Place{}) {
		return
	}
	ours := d.here()
	switch {
	case sameFolder(theirs, ours):
		d.agreed.Store(true)
		d.elsewhere.Store(nil)
	case theirs.Path != ours.Path && d.agreed.Load():
		d.Log.Warn("a plugin with another cniDir asks for a plan: its pods' records are not seen here", "plugin", theirs.Path, "daemon", ours.Path)
	case d.elsewhere.Swap(&theirs) == nil:
		d.Log.Error("the plugin's ledger folder is not the daemon's: mount the host's folder here", "plugin", theirs.Path, "daemon", ours.Path)
	}
}

// here is our ledger's folder, looked up now: it may have been made anew.
func (d *Daemon) here() api.Place {
	ours, err := d.ledger.Place()
	if err != nil {
		return d.place
	}
	return ours
}

// sameFolder tells whether two places are one, whatever they are called.
func sameFolder(a, b api.Place) bool {
	a.Path = b.Path
	return a == b
}

// delegateEnv is the overlay on the delegates' environment.
func (d *Daemon) delegateEnv() []string {
	var env []string
	for _, pair := range d.Environ {
		name, _, _ := strings.Cut(pair, "=")
		for _, allowed := range d.Config.DelegateEnv {
			if name == allowed {
				env = append(env, pair)
			}
		}
	}
	return env
}

func (d *Daemon) handleReport(w http.ResponseWriter, r *http.Request) {
	var report api.Report
	err := read(w, r, &report)
	if err == nil {
		err = speaks(report.Protocol)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	placeOf(r).giveBack()
	d.metrics.observe(report)
	shim.LogReport(d.Log, report)
	if report.Verb != "ADD" || report.Error != nil {
		api.WriteJSON(w, http.StatusOK, api.ReportResponse{})
		return
	}
	published := d.attached(report) //nolint:contextcheck // it goes on when the caller has left
	if !report.Plain {
		d.addedEvents(report)
	}
	if report.NoWait {
		api.WriteJSON(w, http.StatusOK, api.ReportResponse{})
		return
	}
	timeout := time.NewTimer(statusPatience)
	defer timeout.Stop()
	select {
	case err := <-published:
		api.WriteJSON(w, http.StatusOK, api.ReportResponse{Published: err == nil})
	case <-timeout.C:
		api.WriteJSON(w, http.StatusOK, api.ReportResponse{})
	case <-r.Context().Done():
	}
}

// attached follows up an ADD that succeeded, and returns where the end of writing its
// pod's status will be told.
func (d *Daemon) attached(r api.Report) <-chan error {
	d.recordedNow(plan.Pod(r.Pod), r.ContainerID)
	d.publishClaims(r.ContainerID)
	// A pod whose earlier sandbox lacked networks, and who was told so by an earlier daemon,
	// lacks nothing now. With hotplug that is reconciled anyway.
	if pod, ok := d.Cluster.Cached(r.Pod.Namespace, r.Pod.Name); ok && d.hotplug == nil && pod.Annotations[netspec.AnnotationStatus] != "" {
		d.publisher.whole(pod.Pod)
	}
	return d.publisher.publish(plan.Pod(r.Pod), netspec.FormatStatus(shim.Entries(r)))
}

// recordedNow tells hotplug, where it is on, whose a sandbox is that has a record now.
func (d *Daemon) recordedNow(pod plan.Pod, containerID string) {
	if d.hotplug != nil {
		d.hotplug.Attached(pod, containerID)
	}
}

func (d *Daemon) addedEvents(r api.Report) {
	for _, a := range r.Attachments {
		d.Cluster.Added(plan.Pod(r.Pod), a.Interface, a.Addresses, a.Network)
	}
}
