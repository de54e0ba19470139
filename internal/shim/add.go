package shim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// plainPatience is how long a plain pod waits for the daemon, which may know a
// later annotation; then it goes on alone (design, rule 3).
const plainPatience = 50 * time.Millisecond

// Add attaches a pod and returns the primary network's result in the version that
// the runtime asked for.
func (p *Plugin) Add(ctx context.Context, inv Invocation) (types.Result, error) {
	op, closeAll, err := p.start(inv)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, op.cfg.AddTimeout)
	defer cancel()
	if err := op.indicator(); err != nil {
		return nil, err
	}
	planned, plain, err := op.plan(ctx)
	if err != nil {
		op.log.Error("ADD: no plan", "sandbox", op.ContainerID, "error", err)
		return nil, err
	}
	for _, w := range planned.Warnings {
		op.log.Warn(w)
	}
	rec, err := op.engine.Add(ctx, op.sandbox(), planned)
	if err != nil {
		_ = op.report(ctx, failed("ADD", planned.Pod, rec, err)) // logged
		LogReport(op.log, op.ended(failed("ADD", planned.Pod, rec, err)))
		return nil, err
	}
	if err := op.report(ctx, op.attached(rec, plain)); err != nil && op.cfg.NetworkStatus == "required" {
		LogReport(op.log, op.ended(failed("ADD", planned.Pod, rec, err)))
		return nil, op.takeBack(ctx, err)
	}
	LogReport(op.log, op.ended(op.attached(rec, plain)))
	return op.answer(rec)
}

// plan gets the plan: a plain pod's from the daemon if that answers at once, else
// from the node's own files; any other pod's from the daemon.
func (op *operation) plan(ctx context.Context) (p *plan.Plan, plain bool, err error) {
	call, err := op.Call(op.cfg.RuntimeConfig)
	if err != nil {
		return nil, false, err
	}
	req, err := op.planRequest()
	if err != nil {
		return nil, false, err
	}
	delivered := Annotations(op.cfg.RuntimeConfig)
	if delivered == nil || op.AlwaysAsk || plan.Depends(op.cfg, plan.Subject{Pod: plan.PodOf(call.Args), Annotations: delivered}) {
		p, err = op.planner.Plan(ctx, req)
		return p, false, err
	}
	req.Plain = true
	patience, cancel := context.WithTimeout(ctx, plainPatience)
	defer cancel()
	if p, err = op.planner.Plan(patience, req); err == nil {
		return p, !p.Selects(), nil // the daemon may know a later annotation
	}
	if api.CNIError(err).Code == types.ErrInvalidNetworkConfig || errors.Is(err, api.ErrDepends) {
		return nil, false, err // a later annotation; all other trouble is the daemon's own
	}
	if err := op.auxiliaryKnown(); err != nil {
		return nil, true, err
	}
	op.log.Debug("a plain pod is attached without the daemon", "sandbox", op.ContainerID, "error", err)
	p, err = op.planAlone(ctx, delivered)
	return p, true, err
}

func (op *operation) planRequest() (api.PlanRequest, error) {
	stdin, err := cniconf.ParseObject(op.Stdin)
	if err != nil {
		return api.PlanRequest{}, err
	}
	place, err := ledger.New(op.cfg.CNIDir, op.BootID).Place()
	if err != nil {
		return api.PlanRequest{}, err
	}
	return api.PlanRequest{
		Protocol: api.Protocol, ContainerID: op.ContainerID, NetNS: op.NetNS, Interface: op.Interface, Args: op.Args,
		Config: stdin.Without("prevResult", "runtimeConfig", "host").Bytes(), RuntimeConfig: op.cfg.RuntimeConfig, Ledger: place,
	}, nil
}

// takeBack undoes an ADD whose status could not be written (networkStatus: required).
func (op *operation) takeBack(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), op.cfg.DelTimeout)
	defer cancel()
	if _, err := op.engine.Del(ctx, op.sandbox(), op.Interface); err != nil {
		op.log.Error("an ADD whose status could not be written was not undone completely, DEL will try again", "sandbox", op.ContainerID, "error", err)
	}
	return cause
}

// report tells the planner. Who does not wait for the status spends no time on it.
func (op *operation) report(ctx context.Context, r api.Report) error {
	if r.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), plainPatience)
		defer cancel()
	}
	err := op.planner.Report(ctx, op.ended(r))
	if err != nil {
		op.log.Info("the daemon does not know yet how this ended and reads it from the ledger later", "verb", r.Verb, "sandbox", op.ContainerID, "error", err)
	}
	return err
}

// ended fills in what is the same in all reports of an operation that ends now.
func (op *operation) ended(r api.Report) api.Report {
	r.Protocol, r.ContainerID, r.NetNS = api.Protocol, op.ContainerID, op.NetNS
	r.Millis = time.Since(op.begin).Milliseconds()
	return r
}

func (op *operation) attached(rec attach.Record, plain bool) api.Report {
	return api.Report{Verb: "ADD", Pod: api.Pod(rec.Plan.Pod), Plain: plain, NoWait: plain && op.cfg.NetworkStatus != "required", Attachments: reported(rec)}
}

func failed(verb string, pod plan.Pod, rec attach.Record, err error) api.Report {
	return api.Report{Verb: verb, Pod: api.Pod(pod), NoWait: true, Error: api.CNIError(err), Attachments: reported(rec)}
}

// reported turns a record into what the daemon is told of each attachment.
func reported(rec attach.Record) []api.Attachment {
	var all []api.Attachment
	status := attach.StatusEntries(rec)
	for i, a := range rec.Plan.Attachments {
		told := api.Attachment{Network: a.Network, Interface: a.Interface}
		for _, p := range a.Config.Plugins() {
			told.Plugins = append(told.Plugins, p.Type)
		}
		if i < len(rec.Outcomes) {
			told.Millis, told.Failed = rec.Outcomes[i].Millis, rec.Outcomes[i].Result == nil
			told.Addresses = netspec.Addresses(rec.Outcomes[i].Result)
		}
		for _, entry := range status[i] {
			raw, err := json.Marshal(entry)
			if err == nil { // a status entry always marshals
				told.Status = append(told.Status, raw)
			}
		}
		all = append(all, told)
	}
	return all
}

// Entries are the network-status elements of a report.
func Entries(r api.Report) []netspec.StatusEntry {
	var entries []netspec.StatusEntry
	for _, a := range r.Attachments {
		for _, raw := range a.Status {
			var e netspec.StatusEntry
			if json.Unmarshal(raw, &e) == nil {
				entries = append(entries, e)
			}
		}
	}
	return entries
}
