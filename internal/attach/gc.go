package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// gcGrace protects sandboxes younger than this from GC: the runtime may have
// listed its attachments before it added them.
const gcGrace = time.Minute

// gcResults is how many of libcni's results one GC gives back. The rest is for the next,
// and for the networks' own GC.
const gcResults = 200

// GC gives back what the runtime no longer knows. valid are the runtime's
// attachments of our own network; every sandbox that has none there and is not
// brand-new gets its DEL. What Multus v4 or libcni's cache alone know of must have lost
// its namespace, too. Then each network that is in use, by any
// record, is asked to collect its own garbage, with all that the ledger and the
// runtime still name as valid: what no record, v4 file or intent names is freed,
// nothing else. Where a record is damaged, no network collects. Where the runtime
// names a sandbox without a record, which other networks it has is not known: the
// primary network alone collects then; where that is not known either (nil), none does.
func (e *Engine) GC(ctx context.Context, primary *cniconf.Config, valid []types.GCAttachment) error {
	stuck := Stuck{}
	stale := errors.Join(e.detachStale(ctx, valid, stuck), e.collectStale(ctx, valid, stuck))
	lock, err := e.Ledger.LockAll(ctx)
	if err != nil {
		return errors.Join(stale, fmt.Errorf("no network collects its garbage: %w", err))
	}
	defer lock.Release()
	inUse, err := e.usage(primary, valid)
	if err != nil {
		return errors.Join(stale, fmt.Errorf("no network collects its garbage, because not all attachments are known: %w", err))
	}
	failed := []error{stale}
	for _, name := range inUse.order {
		if stuck.gaveUp(name) {
			continue // it would take the time of the others
		}
		if inUse.stranger != "" && name != primary.Name() {
			e.Log.Info("a network does not collect its garbage, because the attachments of a sandbox are not known", "network", name, "sandbox", inUse.stranger)
			continue
		}
		if err := e.Runner.GC(ctx, inUse.configs[name], inUse.valid[name]); err != nil {
			failed = append(failed, fmt.Errorf("network %s: GC: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// detachStale deletes the sandboxes that the runtime does not know, each under its
// own lock, because delegates of a killed ADD may still run.
func (e *Engine) detachStale(ctx context.Context, valid []types.GCAttachment, stuck Stuck) error {
	all, err := e.Ledger.All()
	if err != nil {
		return err
	}
	old := func(rec Record) bool {
		if rec.Origin != Ours { // a device may be another sandbox's by now, which would lose it
			return len(rec.Devices()) == 0 && e.gone(ctx, rec)
		}
		return e.now().Sub(rec.Created) >= gcGrace
	}
	var failed []error
	for _, l := range all {
		if _, known := interfaceOf(valid, l.ContainerID); !known && l.Err == nil && !stuck.Holds(l.Record) && old(l.Record) {
			failed = append(failed, stuck.Try(ctx, l.Record, func(ctx context.Context) error {
				_, err := e.detachIdle(ctx, l.ContainerID, old)
				return err
			}))
		}
	}
	return errors.Join(failed...)
}

// collectStale does the same for what is left in libcni's cache alone, devices excepted.
func (e *Engine) collectStale(ctx context.Context, valid []types.GCAttachment, stuck Stuck) error {
	var failed []error
	left := gcResults
	for rec, err := range e.Ledger.Results() {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		if left == 0 || ctx.Err() != nil {
			break
		}
		if _, known := interfaceOf(valid, rec.Sandbox.ContainerID); known || len(rec.Devices()) > 0 || stuck.Holds(rec) {
			continue
		}
		failed = append(failed, stuck.Try(ctx, rec, func(ctx context.Context) error {
			tried, err := e.collectResult(ctx, rec)
			if tried && err == nil {
				left--
			}
			return err
		}))
	}
	return errors.Join(failed...)
}

// interfaceOf is what the runtime calls our own network's interface in a sandbox.
func interfaceOf(valid []types.GCAttachment, containerID string) (ifName string, known bool) {
	i := slices.IndexFunc(valid, func(a types.GCAttachment) bool { return a.ContainerID == containerID })
	if i < 0 {
		return "", false
	}
	return valid[i].IfName, true
}

// Status asks the primary network's plugins whether they could attach a pod now.
func (e *Engine) Status(ctx context.Context, primary cniconf.Config) error {
	return e.Runner.Status(ctx, primary)
}

// usage is which attachments each CNI network has.
type usage struct {
	order   []string
	configs map[string]cniconf.Config
	valid   map[string][]types.GCAttachment
	// stranger is a sandbox that the runtime names and nothing is recorded of.
	stranger string
}

// usage collects the attachments of all networks, under the lock above all.
func (e *Engine) usage(primary *cniconf.Config, valid []types.GCAttachment) (*usage, error) {
	all, err := e.Ledger.All()
	if err != nil {
		return nil, err
	}
	u := &usage{configs: map[string]cniconf.Config{}, valid: map[string][]types.GCAttachment{}}
	if primary != nil {
		u.add(*primary, valid...)
	}
	recorded := map[string]bool{}
	for _, l := range all {
		id, rec, err := l.ContainerID, l.Record, l.Err
		if errors.Is(err, ErrNoRecord) {
			continue
		}
		ifName, _ := interfaceOf(valid, id)
		rec.calledBy(rec.Sandbox, ifName)
		unnamed := func(a plan.Attachment) bool { return a.Interface == "" }
		if err == nil && slices.ContainsFunc(rec.Plan.Attachments, unnamed) {
			err = errors.New("neither its record nor the runtime tells its primary network's interface")
		}
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", id, err)
		}
		recorded[id] = true
		u.addRecord(rec)
	}
	for _, a := range valid {
		if recorded[a.ContainerID] {
			continue
		}
		u.stranger = a.ContainerID
		if primary == nil {
			return nil, fmt.Errorf("sandbox %s has no record, and the primary network is not known", a.ContainerID)
		}
	}
	return u, nil
}

func (u *usage) addRecord(rec Record) {
	for i, a := range rec.Plan.Attachments {
		if a.Role != plan.Auxiliary && (i >= len(rec.Outcomes) || !rec.Outcomes[i].Detached) {
			u.add(a.Config, types.GCAttachment{ContainerID: rec.Sandbox.ContainerID, IfName: a.Interface})
		}
	}
}

// add notes attachments of a network. Of a network's configurations the first is asked.
func (u *usage) add(c cniconf.Config, attachments ...types.GCAttachment) {
	name := c.Name()
	if _, known := u.configs[name]; !known {
		u.order = append(u.order, name)
		u.configs[name] = c
	}
	for _, a := range attachments {
		if !slices.Contains(u.valid[name], a) {
			u.valid[name] = append(u.valid[name], a)
		}
	}
}
