package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/hotplug"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// followPods puts together what follows the annotations of running pods, where the key
// hotplug is set.
func (d *Daemon) followPods() {
	if !d.Config.Hotplug {
		return
	}
	forbidden := d.mayNotAct()
	if forbidden != "" {
		d.Log.Error("key \"hotplug\" has no effect: the networks of running pods do not change", "error", forbidden)
	}
	engine := d.localPlugin(nil).Engine(d.Config, "", d.Log)
	d.hotplug = hotplug.New(hotplug.Options{
		Cluster: d.Cluster, Records: d.recorded, Load: d.ledger.Load, Rested: rested, Engine: engine, Plan: d.planJoining, Interfaces: engine.Links.Interfaces,
		Admit: func(ctx context.Context) (func(), error) {
			p := &place{admit: d.admission}
			return p.giveBack, d.admit(ctx, p)
		},
		Publish: func(before, now attach.Record, entries []netspec.StatusEntry) {
			d.publisher.publish(now.Plan.Pod, netspec.FormatStatus(entries))
			d.publisher.publishClaims(now.Plan.Pod, claimChange(before, now))
		},
		Count: func(op hotplug.Operation, outcome hotplug.Outcome) {
			d.metrics.hotplugs.WithLabelValues(string(op), string(outcome)).Inc()
		},
		Forbidden: forbidden, AddTimeout: d.Config.AddTimeout, DelTimeout: d.Config.DelTimeout, Log: d.Log,
	})
	d.Cluster.Follow(d.hotplug.Changed, d.hotplug.NetworksChanged)
}

// attachesLate tells whether running pods get their networks late, so that they may
// start without optional ones.
func (d *Daemon) attachesLate() bool { return d.hotplug != nil && d.hotplug.Forbidden == "" }

func (d *Daemon) differences() (all, optional int) {
	if d.hotplug == nil {
		return 0, 0
	}
	return d.hotplug.Differences()
}

// mayNotAct says why this process cannot attach networks on the host; empty where it can.
func (d *Daemon) mayNotAct() string {
	const overlay = "the installation deploy/hotplug gives the daemon what it needs"
	if d.Config.ChrootDir == "" {
		return "the daemon may not act on the host, for the key \"chrootDir\" is not set: " + overlay
	}
	if _, err := os.Stat(d.Config.ChrootDir); err != nil {
		return fmt.Sprintf("the host's root is not where the key \"chrootDir\" says (%v): %s", err, overlay)
	}
	if !capable(unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT) {
		return "the daemon may not act on the host, for its container is not privileged: " + overlay
	}
	if err := unix.Access(d.place.Path, unix.W_OK); err != nil {
		return fmt.Sprintf("the daemon may not write its records in %s (%v): %s", d.place.Path, err, overlay)
	}
	return ""
}

// capable tells whether this process has all of some capabilities.
func capable(all ...uint) bool {
	var have [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0]); err != nil {
		return false
	}
	for _, c := range all {
		if have[c/32].Effective&(1<<(c%32)) == 0 {
			return false
		}
	}
	return true
}

// planJoining plans one network more for a recorded sandbox, under the node's rules.
func (d *Daemon) planJoining(ctx context.Context, rec attach.Record, j hotplug.Joining) (*plan.Plan, error) {
	cfg, err := d.standingConfig()
	if err != nil {
		return nil, err
	}
	call := plan.Call{ContainerID: rec.Sandbox.ContainerID, NetNS: rec.Sandbox.NetNS}
	for _, a := range rec.Plan.Attachments {
		if a.Role == plan.Primary {
			call.Args = a.Args // with what the runtime added
		}
	}
	return d.gatherer.Join(ctx, cfg, call, plan.Subject{Pod: rec.Plan.Pod}, j.Selection, j.Element, rec.Plan.Attachments)
}

// standingConfig is planConfig where no plugin has called: a fixed configuration has
// rules of its own, the generated one has the daemon's.
func (d *Daemon) standingConfig() (*config.Config, error) {
	standing, err := d.standing()
	if err != nil {
		return nil, err
	}
	merged, err := config.Overlay(standing, d.ConfigFile)
	if err != nil {
		return nil, badConfig(err)
	}
	cfg, _, err := config.Parse(merged)
	if err != nil {
		return nil, badConfig(err)
	}
	cfg.Hotplug = true
	return cfg, nil
}

// standing is what the plugin of a fixed configuration would send with a request; that of
// the generated one sends nothing which the daemon does not know.
func (d *Daemon) standing() (json.RawMessage, error) {
	file := d.Config.MultusConfigFile
	if file == "" || file == config.AutoConfigFile {
		return json.RawMessage("{}"), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("key \"multusConfigFile\": %w", err)
	}
	fixed, err := cniconf.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("key \"multusConfigFile\": %s %w", file, err)
	}
	return fixed.Plugins()[0].Object().Bytes(), nil
}
