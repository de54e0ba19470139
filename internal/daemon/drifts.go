package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/multus-thick/multus/internal/attach"
)

// ReasonDrift is of the event on a pod whose interfaces are not as they were given to it.
const ReasonDrift = "NetworkDrift"

// checkRepair is a value of the key "checkPolicy".
const checkRepair = "repair"

// drifts compares what pods have with what they were given, one pod after the other, all of
// them once in checkInterval.
type drifts struct {
	*caretaker
	watch attach.Watch
	told  map[string]map[string]bool // by sandbox: what has been told of it and is so still
}

func (c *drifts) run(ctx context.Context) {
	switch {
	case c.Config.CheckInterval == 0:
		return
	case c.engine == nil:
		c.Log.Warn("key \"checkInterval\": this daemon cannot look into pods' network namespaces (it has no key \"chrootDir\", see deploy/hotplug): nothing is checked")
		return
	}
	c.watch = attach.Watch{Engine: c.engine, Mend: c.Config.CheckPolicy == checkRepair}
	c.told = map[string]map[string]bool{}
	for c.round(ctx) == nil {
	}
}

// round looks at every sandbox once, in checkInterval.
func (c *drifts) round(ctx context.Context) error {
	all, _ := c.recorded(ctx)
	var ids []string
	for _, rec := range all {
		ids = append(ids, rec.Sandbox.ContainerID)
	}
	c.watch.Keep(ids)
	left := map[string]map[string]bool{}
	pause := c.Config.CheckInterval / time.Duration(len(ids)+1)
	for _, id := range ids {
		if err := wait(ctx, pause); err != nil {
			return err
		}
		found, err := c.watch.Look(ctx, id)
		if err != nil && ctx.Err() == nil {
			c.Log.Info("a sandbox cannot be compared with its record", "sandbox", id, "error", err)
		}
		left[id] = c.tell(id, found)
	}
	c.told = left
	n := 0
	for _, all := range left {
		n += len(all)
	}
	c.metrics.drift.Store(int64(n))
	return wait(ctx, pause)
}

// tell says what is new, and returns what is so still.
func (c *drifts) tell(id string, found []attach.Drift) map[string]bool {
	still := map[string]bool{}
	for _, d := range found {
		what := d.String()
		if !d.Mended {
			still[what] = true
		}
		if c.told[id][what] {
			continue
		}
		c.metrics.drifted(d)
		switch {
		case d.Mended:
			what += "; it has been put right"
		case d.Err != nil:
			what += fmt.Sprintf("; %v", d.Err)
		}
		c.Log.Warn("a pod's network is not as it was attached", "pod", d.Pod.String(), "sandbox", id, "network", d.Network, "found", what)
		c.Cluster.Warn(d.Pod, ReasonDrift, fmt.Sprintf("Of the network %s %s", d.Network, what))
	}
	return still
}
