package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cnirun"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/devinfo"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/plan"
)

// Planner knows what a pod is to be attached to, and wants to know how it went.
type Planner interface {
	// Plan makes the plan of an ADD. An error with the CNI code "try again later"
	// means that the planner is not there or not ready; any other is final.
	Plan(ctx context.Context, req api.PlanRequest) (*plan.Plan, error)
	// Report tells how an operation ended. For an attached sandbox it returns when the
	// status is on the pod, unless r.NoWait.
	Report(ctx context.Context, r api.Report) error
}

// Plugin runs CNI invocations on this node.
type Plugin struct {
	// Planner makes the planner of an invocation, whose configuration decides where
	// it is. The cleanup is called when the invocation ends.
	Planner func(cfg *config.Config, log *slog.Logger) (Planner, func(), error)
	// Logger makes the logger of an invocation.
	Logger func(cfg *config.Config) (*slog.Logger, io.Closer)
	// Environ is the environment that delegates get.
	Environ []string
	// BootID is the id of the kernel's boot.
	BootID string
	// Root is the host's root as this process sees it; empty on the host itself.
	Root string
	// AlwaysAsk makes plain pods use the planner without a time limit: it is in this process.
	AlwaysAsk bool
}

// Invocation is one call of the runtime (CNI specification, section 2).
type Invocation struct {
	ContainerID, NetNS, Interface string
	Args                          string // CNI_ARGS
	Path                          string // CNI_PATH
	Stdin                         []byte
}

// operation is an invocation with everything it needs.
type operation struct {
	*Plugin
	Invocation
	cfg     *config.Config
	log     *slog.Logger
	planner Planner
	engine  *attach.Engine
	begin   time.Time
}

// start reads the invocation's configuration and puts the engine together. close
// must be called when the operation is over.
func (p *Plugin) start(inv Invocation) (op *operation, closeAll func(), err error) {
	cfg, _, err := config.Parse(inv.Stdin)
	if err != nil {
		return nil, nil, api.WithCode(types.ErrInvalidNetworkConfig, fmt.Errorf("the Multus configuration: %w", err))
	}
	op = &operation{Plugin: p, Invocation: inv, cfg: cfg, begin: time.Now()}
	log, logCloser := p.Logger(cfg)
	op.log = log
	planner, closePlanner, err := p.Planner(cfg, log)
	if err != nil {
		return nil, nil, errors.Join(err, logCloser.Close())
	}
	op.planner = planner
	op.engine = p.Engine(cfg, inv.Path, log)
	return op, func() {
		closePlanner()
		_ = logCloser.Close() // nowhere left to tell
	}, nil
}

// Engine puts the engine together for this node: real plugins, real namespaces, the
// ledger in cniDir.
func (p *Plugin) Engine(cfg *config.Config, cniPath string, log *slog.Logger) *attach.Engine {
	records := ledger.New(cfg.CNIDir, p.BootID)
	if p.Root != "" { // in the daemon
		records.Resident()
	}
	return &attach.Engine{
		Runner: cnirun.New(cnirun.Options{
			Path: searchPath(cfg.BinDir, cniPath), Env: p.Environ, CacheDir: cfg.CNIDir,
			DelegateTimeout: cfg.DelegateTimeout, Stderr: logWriter{log}, Root: p.Root,
		}),
		Links: netns.New(p.Root), Ledger: records, DeviceInfo: devinfo.Files{Root: p.Root}, Log: log,
		Parallelism: cfg.AttachParallelism, CheckDelegates: cfg.CheckDelegates,
	}
}

// searchPath: binDir goes before the runtime's CNI_PATH (contract 1.3c).
func searchPath(binDir, cniPath string) []string {
	path := []string{binDir}
	for _, dir := range filepath.SplitList(cniPath) {
		if dir != "" && dir != binDir {
			path = append(path, dir)
		}
	}
	return path
}

// parseArgs splits CNI_ARGS into pairs, each at its first "=": values may hold more.
func parseArgs(text string) ([]plan.Arg, error) {
	var args []plan.Arg
	for pair := range strings.SplitSeq(text, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("CNI_ARGS: %q is no pair of the form KEY=VALUE", pair)
		}
		args = append(args, plan.Arg{key, value})
	}
	return args, nil
}

func (op *operation) sandbox() attach.Sandbox {
	return attach.Sandbox{ContainerID: op.ContainerID, NetNS: op.NetNS}
}

// Annotations are the pod's annotations as the runtime handed them over; nil where
// it did not (an old runtime, or null).
func Annotations(runtimeConfig map[string]json.RawMessage) map[string]string {
	raw, ok := runtimeConfig[config.PodAnnotationsCapability]
	if !ok {
		return nil
	}
	var annotations map[string]string
	if err := json.Unmarshal(raw, &annotations); err != nil {
		return nil // not what the convention says: as good as not delivered
	}
	return annotations
}

// Call is the invocation as the plan needs it. DEL of a recorded sandbox needs none,
// and succeeds whatever CNI_ARGS hold.
func (inv Invocation) Call(runtimeConfig map[string]json.RawMessage) (plan.Call, error) {
	args, err := parseArgs(inv.Args)
	if err != nil {
		return plan.Call{}, api.WithCode(types.ErrInvalidEnvironmentVariables, err)
	}
	return plan.Call{ContainerID: inv.ContainerID, NetNS: inv.NetNS, Interface: inv.Interface, Args: args, RuntimeConfig: runtimeConfig}, nil
}

// answer converts the primary network's result to the version that the runtime asked for.
func (op *operation) answer(rec attach.Record) (types.Result, error) {
	raw := rec.Outcomes[0].Result
	if rec.Outcomes[0].Routed != nil {
		raw = rec.Outcomes[0].Routed
	}
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("the primary network's result cannot be read: %w", err)
	}
	return result.GetAsVersion(op.version())
}

func (op *operation) version() string {
	if op.cfg.CNIVersion == "" {
		return "0.1.0"
	}
	return op.cfg.CNIVersion
}

// logWriter sends the delegates' stderr to the log, a line a record.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		w.log.Info("a delegate says", "stderr", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}
