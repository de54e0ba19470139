package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/shim"
)

// handleCNI serves Multus v4's shim (contract 1.8): the daemon runs the whole
// invocation on the host, with the code of our own plugin.
func (d *Daemon) handleCNI(w http.ResponseWriter, r *http.Request) {
	d.serveLegacy(w, r, func(ctx context.Context, req api.Request) (json.RawMessage, error) {
		stdin, err := config.Overlay(req.Config, d.ConfigFile)
		if err != nil {
			return nil, badConfig(err)
		}
		if stdin, err = here(stdin); err != nil {
			return nil, badConfig(err)
		}
		inv := invocation(req.Env, stdin)
		plugin := d.localPlugin(placeOf(r))
		switch verb := req.Env["CNI_COMMAND"]; verb {
		case "ADD":
			defer placeOf(r).giveBack()
			result, err := plugin.Add(ctx, inv)
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		case "DEL":
			return nil, plugin.Del(ctx, inv)
		case "CHECK":
			return nil, plugin.Check(ctx, inv)
		case "GC":
			return nil, plugin.GC(ctx, inv)
		case "STATUS":
			return nil, plugin.Status(ctx, inv)
		default:
			return nil, fmt.Errorf("CNI_COMMAND is %q: want ADD, DEL, CHECK, GC or STATUS", verb)
		}
	})
}

// serveLegacy reads and answers a request of contract 1.8.
func (d *Daemon) serveLegacy(w http.ResponseWriter, r *http.Request, do func(context.Context, api.Request) (json.RawMessage, error)) {
	var req api.Request
	err := read(w, r, &req)
	if err == nil && d.Config.ChrootDir == "" {
		err = errors.New("this daemon may not run plugins on the host: its configuration has no chrootDir")
	}
	if err == nil && d.draining.Load() {
		err = errDraining
	}
	var result json.RawMessage
	if err == nil {
		result, err = do(r.Context(), req)
	}
	if err != nil {
		d.Log.Error("a request of an older client failed", "path", r.URL.Path, "command", req.Env["CNI_COMMAND"], "error", err)
		api.WriteJSON(w, http.StatusBadRequest, api.CNIError(err))
		return
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	api.WriteJSON(w, http.StatusOK, api.Response{Result: result})
}

// here takes the host's paths out of a generated configuration: the invocation runs
// in the daemon, where the primary network's file is at clusterNetwork.
func here(stdin json.RawMessage) (json.RawMessage, error) {
	conf, err := cniconf.ParseObject(stdin)
	return conf.Without("host").Bytes(), err
}

func invocation(env map[string]string, stdin []byte) shim.Invocation {
	return shim.Invocation{
		ContainerID: env["CNI_CONTAINERID"], NetNS: env["CNI_NETNS"], Interface: cmp.Or(env["CNI_IFNAME"], "eth0"),
		Args: env["CNI_ARGS"], Path: env["CNI_PATH"], Stdin: stdin,
	}
}

// localPlugin is the plugin inside the daemon: it plans here and acts on the host.
func (d *Daemon) localPlugin(p *place) *shim.Plugin {
	return &shim.Plugin{
		Planner:   func(*config.Config, *slog.Logger) (shim.Planner, func(), error) { return &local{d, p}, func() {}, nil },
		Logger:    func(*config.Config) (*slog.Logger, io.Closer) { return d.Log, io.NopCloser(nil) },
		Environ:   d.Environ,
		BootID:    d.BootID,
		Root:      d.Config.ChrootDir,
		AlwaysAsk: true,
	}
}

// local is the planner for callers that the daemon acts for.
type local struct {
	*Daemon
	place *place
}

// Plan is shim.Planner's.
func (l *local) Plan(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
	return l.plan(ctx, l.place, req)
}

// Report is shim.Planner's.
func (l *local) Report(ctx context.Context, r api.Report) error {
	l.metrics.observe(r)
	if r.Verb != "ADD" || r.Error != nil {
		return nil
	}
	published := l.attached(r) //nolint:contextcheck // it goes on when the caller has left
	l.addedEvents(r)
	if r.NoWait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	select {
	case err := <-published:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handleDelegate serves the dynamic-networks-controller (contract 1.8 and 1.18): one
// network more, or less, for a running pod. Unlike v4's, the attachment is
// recorded, so the pod's deletion gives it back; one that is recorded already
// answers with the recorded result. The daemon's keys stay out of the delegate's
// configuration.
func (d *Daemon) handleDelegate(w http.ResponseWriter, r *http.Request) {
	d.serveLegacy(w, r, func(ctx context.Context, req api.Request) (json.RawMessage, error) {
		inv := invocation(req.Env, req.Config)
		a, pod, err := d.delegated(inv, req.InterfaceAttributes)
		if err != nil {
			return nil, api.WithCode(types.ErrInvalidNetworkConfig, err)
		}
		engine := d.localPlugin(placeOf(r)).Engine(d.Config, inv.Path, d.Log)
		sb := attach.Sandbox{ContainerID: inv.ContainerID, NetNS: inv.NetNS}
		switch verb := req.Env["CNI_COMMAND"]; verb {
		case "ADD":
			defer placeOf(r).giveBack()
			if err := d.admit(ctx, placeOf(r)); err != nil {
				return nil, err
			}
			result, err := engine.Plug(ctx, sb, pod, a)
			if err == nil {
				d.recordedNow(pod, sb.ContainerID)
			}
			return result, err
		case "DEL":
			return nil, engine.Unplug(ctx, sb, pod, a)
		case "CHECK":
			return nil, engine.CheckOne(ctx, sb, a)
		case "STATUS":
			return nil, engine.Status(ctx, a.Config)
		default:
			return nil, fmt.Errorf("CNI_COMMAND is %q: want ADD, DEL, CHECK or STATUS", verb)
		}
	})
}

// delegated is the attachment that a /delegate request describes.
func (d *Daemon) delegated(inv shim.Invocation, attributes *api.DelegateInterfaceAttributes) (plan.Attachment, plan.Pod, error) {
	conf, err := cniconf.Parse(inv.Stdin)
	if err != nil {
		return plan.Attachment{}, plan.Pod{}, fmt.Errorf("the delegate's configuration %w", err)
	}
	call, err := inv.Call(nil)
	if err != nil {
		return plan.Attachment{}, plan.Pod{}, err
	}
	selected := netspec.Selection{Interface: inv.Interface}
	if attributes != nil {
		selected.IPs, selected.MAC = attributes.IPRequest, attributes.MacRequest
		if attributes.CNIArgs != nil {
			selected.CNIArgs = map[string]json.RawMessage{}
			for key, value := range *attributes.CNIArgs {
				selected.CNIArgs[key] = cniconf.Quote(value)
			}
		}
	}
	cfg, err := d.standingConfig()
	if err != nil {
		return plan.Attachment{}, plan.Pod{}, err
	}
	return plan.Single(cfg, call, conf, selected)
}
