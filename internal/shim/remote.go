package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/plan"
)

// Remote is the planner of the thick plugin: the daemon, over its socket.
func Remote(cfg *config.Config, _ *slog.Logger) (Planner, func(), error) {
	client := api.NewClient(cfg.DaemonSocketDir)
	return &remote{client, cfg}, client.Close, nil
}

type remote struct {
	client *api.Client
	cfg    *config.Config
}

// Plan is Planner's.
func (r *remote) Plan(ctx context.Context, req api.PlanRequest) (*plan.Plan, error) {
	wait := r.cfg.DaemonTimeout
	if req.Plain {
		wait = 0
	}
	answer, err := r.client.Plan(ctx, wait, req)
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	if err := json.Unmarshal(answer.Plan, &p); err != nil {
		return nil, unreadable(err)
	}
	if p.Version != plan.Version {
		return nil, unreadable(fmt.Errorf("it has version %d, this plugin reads %d: update both", p.Version, plan.Version))
	}
	if len(p.Attachments) == 0 {
		return nil, unreadable(errors.New("it has no attachments"))
	}
	return &p, nil
}

// unreadable: a daemon of another version may be replaced soon.
func unreadable(why error) error {
	return api.WithCode(types.ErrTryAgainLater, fmt.Errorf("the daemon's plan cannot be read: %w", why))
}

// Report is Planner's.
func (r *remote) Report(ctx context.Context, report api.Report) error {
	if report.NoWait {
		return r.client.Tell(ctx, report)
	}
	answer, err := r.client.Report(ctx, report)
	if err == nil && r.cfg.NetworkStatus == "required" && report.Verb == "ADD" && report.Error == nil && !answer.Published {
		err = api.WithCode(types.ErrTryAgainLater, fmt.Errorf("pod %s/%s: its network-status could not be written in time", report.Pod.Namespace, report.Pod.Name))
	}
	return err
}
