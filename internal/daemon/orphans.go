package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/ledger"
)

const (
	orphansFirst = 5 * time.Second // after the start, which has more urgent things to do
	orphansAgain = time.Minute     // where one look failed
	orphansEvery = 10 * time.Minute
	// maxNamed is how many orphans are named to the plugin at once, and maxTold is how many
	// of one look get an event.
	maxNamed = 256
	maxTold  = 10
)

// Values of the key "orphans".
const (
	orphansOff    = "off"
	orphansDryRun = "dry-run"
)

// ReasonOrphan is of the event on a pod that is gone, and of whose sandbox something is left.
const ReasonOrphan = "OrphanedNetworks"

// orphans looks for what is left of sandboxes that nobody owns. Where the daemon may not
// act on the host it names them to the plugin, which is called there all the time.
type orphans struct {
	*caretaker
	named []string // to the plugin, by the last look
	told  map[string]bool
}

func (o *orphans) run(ctx context.Context) {
	if o.Config.Orphans == orphansOff {
		o.hand(nil)
		return
	}
	for pause := orphansFirst; wait(ctx, pause) == nil; {
		pause = orphansEvery
		if err := o.look(ctx); err != nil && ctx.Err() == nil {
			pause = orphansAgain
			o.Log.Warn("orphans are not looked for", "error", err)
		}
	}
}

// look is one look at everything. The API is asked when something turns up that may be an
// orphan.
func (o *orphans) look(ctx context.Context) error {
	if problem := o.Cluster.Problem(); problem != "" {
		return errors.New(problem)
	}
	l := orphanLook{
		orphans: o, evidence: audit.Evidence{At: time.Now()}, cached: audit.ByName(o.Cluster.Pods()),
		ours: map[string]bool{}, found: map[attach.Origin]int{}, told: map[string]bool{}, stuck: attach.Stuck{},
	}
	l.askRuntime(ctx)
	if err := errors.Join(l.files(ctx), l.results(ctx)); err != nil {
		return err
	}
	for _, name := range o.named {
		if _, err := o.ledger.Open(name); errors.Is(err, attach.ErrNoRecord) {
			o.metrics.cleaned(nil) // by the plugin
		}
	}
	o.told = l.told
	o.hand(l.named)
	for origin, gauge := range o.metrics.orphans {
		gauge.Store(int64(l.found[origin]))
	}
	return nil
}

// ask completes the evidence, once a look.
func (l *orphanLook) ask(ctx context.Context) error {
	e := &l.evidence
	if e.Pods != nil {
		return nil
	}
	pods, err := l.Cluster.LivePods(ctx)
	if err != nil {
		return err
	}
	all := audit.ByName(pods)
	busy := map[string]bool{}
	pace := pacer(0)
	for rec, err := range l.ledger.Each() {
		if err := pace.next(ctx); err != nil {
			return err
		}
		if t := (audit.Trace{Record: rec}); err == nil && (rec.Origin != attach.Ours || all.Owned(t)) {
			for _, id := range rec.Devices() {
				busy[id] = true
			}
		}
	}
	e.Pods, e.Busy = all, busy
	return nil
}

// askRuntime asks which sandboxes the runtime knows.
func (l *orphanLook) askRuntime(ctx context.Context) {
	if l.runtime == nil {
		return
	}
	known, err := l.runtime.Sandboxes(ctx)
	if err != nil {
		l.Log.Info("orphans are judged without the runtime's word", "error", err)
		return
	}
	l.evidence.Runtime = known
}

// hand names files to the plugin.
func (o *orphans) hand(names []string) {
	o.named = names
	path := filepath.Join(o.Config.SocketDir, api.OrphansName)
	var err error
	if len(names) > 0 {
		err = atomicfile.Write(path, []byte(strings.Join(names, "\n")+"\n"), 0o600)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		o.Log.Warn("orphans cannot be named to the plugin", "error", err)
	}
}

// orphanLook is one look.
type orphanLook struct {
	*orphans
	evidence audit.Evidence
	cached   audit.Pods      // not for certain
	ours     map[string]bool // sandboxes with a record of ours
	found    map[attach.Origin]int
	named    []string
	told     map[string]bool
	stuck    attach.Stuck
	pace     pacer
}

// files looks at the files of sandboxes.
func (l *orphanLook) files(ctx context.Context) error {
	for rec, err := range l.ledger.Each() {
		switch {
		case err != nil && rec.Sandbox.ContainerID == "":
			return err
		case err != nil || rec.Origin == attach.Ours:
			l.ours[rec.Sandbox.ContainerID] = true
		}
		if err := l.pace.next(ctx); err != nil {
			return err
		}
		if err == nil && rec.Origin == attach.FromV4 {
			rec, err = l.whose(rec)
		}
		if err != nil {
			continue
		}
		if err := l.judge(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// whose completes what a file of Multus v4 tells by libcni's results, where the runtime does
// not know its sandbox. To look for them takes long; without the runtime's word the results
// are judged, not the file.
func (l *orphanLook) whose(rec attach.Record) (attach.Record, error) {
	if len(l.evidence.Runtime) == 0 || l.evidence.Runtime[rec.Sandbox.ContainerID] {
		return rec, nil
	}
	full, err := l.ledger.Load(rec.Sandbox.ContainerID)
	full.Created = rec.Created
	return full, err
}

// results looks at libcni's results: those that nothing else tells of, and those that tell
// whose a file of Multus v4 is.
func (l *orphanLook) results(ctx context.Context) error {
	for rec, err := range l.ledger.Results() {
		if err != nil {
			return err
		}
		if err := l.pace.next(ctx); err != nil {
			return err
		}
		if l.ours[rec.Sandbox.ContainerID] {
			continue
		}
		if l.ledger.Recorded(rec.Sandbox.ContainerID) { // one of v4's
			if len(l.evidence.Runtime) > 0 {
				continue // files has judged it
			}
			rec.Origin = attach.FromV4
		}
		if err := l.judge(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// judge acts on a trace of a sandbox if it is an orphan.
func (l *orphanLook) judge(ctx context.Context, rec attach.Record) error {
	t := l.trace(rec)
	if !audit.Suspect(l.evidence.At, t) || l.cached.Owned(t) {
		return nil
	}
	if err := l.ask(ctx); err != nil {
		return err
	}
	if !l.evidence.Orphan(t) {
		return nil
	}
	name := ledger.Name(rec)
	outcome := "it will be given back"
	switch {
	case l.Config.Orphans == orphansDryRun:
		outcome = "it is left, by the key \"orphans\""
		l.found[rec.Origin]++
	case l.engine != nil && l.stuck.Holds(rec):
		l.found[rec.Origin]++
		return nil // by the next look, perhaps
	case l.engine != nil:
		begin := time.Now()
		tried := false
		err := l.stuck.Try(ctx, rec, func(ctx context.Context) (err error) {
			tried, err = l.engine.Collect(ctx, rec)
			return err
		})
		if !tried {
			return nil // gone already, or somebody works on it
		}
		l.metrics.cleaned(err)
		outcome = "it has been given back"
		if err != nil {
			l.found[rec.Origin]++
			outcome = fmt.Sprintf("it cannot be given back: %v", err)
		}
		_ = wait(ctx, time.Since(begin)) // half of the time is for others
	default:
		l.found[rec.Origin]++
		if len(l.named) < maxNamed {
			l.named = append(l.named, name)
		}
	}
	l.tell(rec, name, outcome)
	return nil
}

func (l *orphanLook) tell(rec attach.Record, name, outcome string) {
	if len(l.told) >= maxTold && !l.orphans.told[name] {
		return
	}
	l.told[name] = true
	if l.orphans.told[name] {
		return
	}
	var networks []string
	for _, a := range rec.Plan.Attachments {
		networks = append(networks, a.Network)
	}
	l.Log.Info("a sandbox that nobody owns any more has left something behind", "pod", rec.Plan.Pod.String(), "sandbox", rec.Sandbox.ContainerID, "networks", networks, "outcome", outcome)
	if rec.Plan.Pod.Name != "" {
		l.Cluster.Note(rec.Plan.Pod, ReasonOrphan, fmt.Sprintf("The pod is gone, and its sandbox %s has left behind what it had of %s: %s", rec.Sandbox.ContainerID, strings.Join(networks, ", "), outcome))
	}
}
