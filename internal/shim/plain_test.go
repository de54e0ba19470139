package shim

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/plan"
)

// refusing is a planner that answers every question with an error.
type refusing struct{ err error }

func (r refusing) Plan(context.Context, api.PlanRequest) (*plan.Plan, error) { return nil, r.err }
func (r refusing) Report(context.Context, api.Report) error                  { return r.err }

// TestR3PlainPodAndAnOddDaemon: whatever troubles the daemon, a plain pod goes on
// without it; only what the daemon says of the pod itself counts.
func TestR3PlainPodAndAnOddDaemon(t *testing.T) {
	stdin := []byte(`{"cniVersion":"1.0.0","name":"m","type":"multus-shim","cniDir":"` + t.TempDir() + `",` +
		`"delegates":[{"cniVersion":"1.0.0","name":"p","type":"bridge"}],"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{}}}`)
	for text, c := range map[string]struct {
		err   error
		alone bool
	}{
		"away":           {api.WithCode(types.ErrTryAgainLater, errors.New("no socket")), true},
		"older":          {errors.New("the plugin speaks protocol 2, this daemon 1"), true},
		"wrong networks": {api.WithCode(types.ErrInvalidNetworkConfig, errors.New("no such network")), false},
		"has networks":   {api.ErrDepends, false},
	} {
		t.Run(text, func(t *testing.T) {
			cfg, _, err := config.Parse(stdin)
			if err != nil {
				t.Fatal(err)
			}
			op := &operation{Plugin: &Plugin{}, Invocation: Invocation{Stdin: stdin}, cfg: cfg, log: slog.New(slog.DiscardHandler), planner: refusing{c.err}}
			p, plain, err := op.plan(t.Context())
			if c.alone && (err != nil || !plain || len(p.Attachments) != 1) || !c.alone && !errors.Is(err, c.err) {
				t.Errorf("got %v, plain %v, error %v", p, plain, err)
			}
		})
	}
}

// TestC1_3IndicatorIsSeenWhereTheInvocationRuns: in the daemon, which acts for an older
// plugin, the configured path is the daemon's own, whatever the host's root shows there.
func TestC1_3IndicatorIsSeenWhereTheInvocationRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ready")
	op := &operation{Plugin: &Plugin{Root: t.TempDir()}, cfg: &config.Config{ReadinessIndicatorFile: file}}
	if err := op.indicator(); !api.TryLater(err) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := op.indicator(); err != nil {
		t.Error(err)
	}
}
