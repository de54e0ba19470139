package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
)

// statusPatience bounds STATUS: containerd asks every few seconds (design, rule 17).
const statusPatience = 2 * time.Second

// Del gives back what the sandbox has, from the ledger alone.
func (p *Plugin) Del(ctx context.Context, inv Invocation) error {
	op, closeAll, err := p.start(inv)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, op.cfg.DelTimeout)
	defer cancel()
	rec, err := op.engine.Del(ctx, op.sandbox(), op.Interface)
	if errors.Is(err, attach.ErrNoRecord) {
		op.delUnrecorded(ctx)
		return nil
	}
	pod := rec.Plan.Pod
	if err == nil && rec.Origin == attach.Ours && !rec.HasPrimary() {
		op.delUnrecorded(ctx) // its record began with a network that was plugged in later
	}
	if err != nil {
		LogReport(op.log, op.ended(failed("DEL", pod, rec, err)))
		_ = op.report(ctx, failed("DEL", pod, rec, err)) // logged
		return err
	}
	done := api.Report{Verb: "DEL", Pod: api.Pod(pod), NoWait: true, Attachments: reported(rec)}
	LogReport(op.log, op.ended(done))
	_ = op.report(ctx, done)
	op.sweep(ctx)
	return nil
}

// delUnrecorded asks the primary network to delete a sandbox that nothing is
// recorded of: it may have been made before Multus came to the node. DEL of what
// was never set up succeeds, so a failure is for the log only.
func (op *operation) delUnrecorded(ctx context.Context) {
	own, err := op.primaryConfig(ctx)
	if err != nil {
		op.log.Info("DEL of a sandbox without a record", "sandbox", op.ContainerID, "error", err)
		return
	}
	a := attach.Attachment{Attachment: own.Attachments[0], Sandbox: op.sandbox()}
	if err := op.engine.Runner.Del(ctx, a, op.cfg.PrevResult); err != nil {
		op.log.Info("DEL of a sandbox without a record: the primary network", "sandbox", op.ContainerID, "error", err)
	}
}

// Check compares a sandbox with what the ledger says of it.
func (p *Plugin) Check(ctx context.Context, inv Invocation) error {
	op, closeAll, err := p.start(inv)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, op.cfg.AddTimeout)
	defer cancel()
	err = op.engine.Check(ctx, op.sandbox(), op.Interface)
	if !errors.Is(err, attach.ErrNoRecord) {
		return err
	}
	// Attached before Multus came to the node: the primary network knows.
	if op.cfg.PrevResult == nil {
		return fmt.Errorf("sandbox %s: there is nothing to compare it with: no record, and no prevResult from the runtime", op.ContainerID)
	}
	own, err := op.primaryConfig(ctx)
	if err != nil {
		return err
	}
	a := attach.Attachment{Attachment: own.Attachments[0], Sandbox: op.sandbox()}
	return op.engine.Runner.Check(ctx, a, op.cfg.PrevResult)
}

// Status answers from the node's own files and the primary network, without the daemon.
func (p *Plugin) Status(ctx context.Context, inv Invocation) error {
	op, closeAll, err := p.start(inv)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	if err := op.indicator(); err != nil {
		return unavailable(err)
	}
	if op.cfg.Host == nil && op.cfg.ClusterNetwork != "" && !strings.Contains(op.cfg.ClusterNetwork, "/") {
		return nil // the primary network is in the API, which STATUS does not wait for
	}
	own, err := op.primaryConfig(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer op.sweep(ctx) // containerd asks every few seconds, also where no pod comes or goes
	return op.engine.Status(ctx, own.Attachments[0].Config)
}

func unavailable(why error) error {
	return api.WithCode(types.ErrPluginNotAvailable, fmt.Errorf("pods cannot be attached now: %w", why))
}

// GC gives back what the runtime no longer knows.
func (p *Plugin) GC(ctx context.Context, inv Invocation) error {
	op, closeAll, err := p.start(inv)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, op.cfg.AddTimeout)
	defer cancel()
	valid, err := validAttachments(inv.Stdin)
	if err != nil {
		return api.WithCode(types.ErrDecodingFailure, err)
	}
	var primary *cniconf.Config
	if own, err := op.primaryConfig(ctx); err == nil {
		primary = &own.Attachments[0].Config
	}
	err = op.engine.GC(ctx, primary, valid)
	_ = op.report(ctx, api.Report{Verb: "GC", NoWait: true, Error: api.CNIError(err)})
	return err
}

// validAttachments reads the list of a GC request (CNI specification 1.1, GC). A
// request without the list is refused: taken as an empty one it would free all.
func validAttachments(stdin []byte) ([]types.GCAttachment, error) {
	obj, err := cniconf.ParseObject(stdin)
	if err != nil {
		return nil, err
	}
	raw, ok := obj.Get("cni.dev/valid-attachments")
	if !ok {
		return nil, errors.New("the GC request has no key \"cni.dev/valid-attachments\"")
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(raw, &valid); err != nil {
		return nil, fmt.Errorf("the key \"cni.dev/valid-attachments\" is not a list of attachments: %w", err)
	}
	return valid, nil
}

// sweepPatience bounds a sweep (design, rule 16).
const sweepPatience = time.Second

// sweep finishes two overdue clean-ups of other sandboxes at most (design, rule 16): one
// that Multus left unfinished, and one that the daemon says is nobody's. It never changes
// the answer. Where the call's own time is nearly over the next one sweeps: delegates would
// be ended half-way.
func (op *operation) sweep(ctx context.Context) {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < sweepPatience {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	if err := errors.Join(op.engine.Sweep(ctx, 1), op.collectNamed(ctx)); err != nil {
		op.log.Info("an overdue clean-up failed again", "error", err)
	}
}

// collectNamed collects one of the orphans that the daemon has named. Each is tried once:
// what fails is named again when the daemon looks again, which is in minutes.
func (op *operation) collectNamed(ctx context.Context) error {
	path := filepath.Join(op.cfg.DaemonSocketDir, api.OrphansName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // none is the rule
	}
	names := strings.Fields(string(text))
	for tried := false; len(names) > 0 && !tried && ctx.Err() == nil; names = names[1:] {
		tried, err = op.engine.CollectNamed(ctx, names[0])
	}
	if len(names) == 0 {
		return errors.Join(err, os.Remove(path))
	}
	return errors.Join(err, atomicfile.Write(path, []byte(strings.Join(names, "\n")+"\n"), 0o600))
}
