package cnirun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
)

// Options are what a Runner works with.
type Options struct {
	// Path are the folders in which plugins are searched, the first match wins. It is
	// the CNI_PATH of the plugins as well.
	Path []string
	// Root is the host's root as this process sees it: plugins are found below it and
	// run with it as their root. Empty on the host itself.
	Root string
	// Env is the environment of the plugins ("NAME=value"), without the CNI_
	// variables of the protocol, which the runner sets.
	Env []string
	// CacheDir is the folder (cniDir) that has libcni's result cache in "results"
	// (contract 1.9); empty for none.
	CacheDir string
	// DelegateTimeout limits each call of a plugin; zero for no limit but the context.
	DelegateTimeout time.Duration
	// Stderr gets what plugins write to their stderr, one line a Write, each with the
	// plugin's type and verb before it. Nil drops it.
	Stderr io.Writer
}

// Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	Options
	stderr *sink
}

var _ attach.Runner = (*Runner)(nil)

// New makes a Runner.
func New(o Options) *Runner {
	return &Runner{Options: o, stderr: &sink{out: o.Stderr}}
}

// Ready is attach.Runner's.
func (r *Runner) Ready(a attach.Attachment) error {
	if err := validate(a); err != nil {
		return err
	}
	for _, p := range a.Config.Plugins() {
		if r.find(p.Type) == "" {
			return r.absent(p.Type, "ADD", exec.ErrNotFound)
		}
	}
	return nil
}

// Add is attach.Runner's. Where it fails, what the plugins before the failing one
// made is still there: undoing is the caller's, with Del.
func (r *Runner) Add(ctx context.Context, a attach.Attachment) (json.RawMessage, error) {
	if err := validate(a); err != nil {
		return nil, err
	}
	var result json.RawMessage
	for _, p := range a.Config.Plugins() {
		out, err := r.run(ctx, r.call("ADD", a, p, result))
		if err != nil {
			return nil, err
		}
		if result, err = resultAs(a.Config.CNIVersion(), out); err != nil {
			return nil, &failure{plugin: p.Type, verb: "ADD", err: types.NewError(types.ErrDecodingFailure, "stdout is not a CNI result", err.Error()), cause: err}
		}
	}
	if result == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "the configuration of network "+a.Network+" has no plugins", "")
	}
	if err := r.remember(a, result); err != nil {
		return nil, err
	}
	return result, nil
}

// Del is attach.Runner's. A prev that is no result is left out, for a damaged
// record must not keep a sandbox alive.
func (r *Runner) Del(ctx context.Context, a attach.Attachment, prev json.RawMessage) error {
	var known json.RawMessage
	if prev != nil && atLeast(a.Config, "0.4.0") {
		known, _ = resultAs(a.Config.CNIVersion(), prev)
	}
	var errs []error
	plugins := a.Config.Plugins()
	for i := len(plugins) - 1; i >= 0; i-- {
		_, err := r.run(ctx, r.call("DEL", a, plugins[i], known))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.forget(a)
}

// Check is attach.Runner's. It ends at the first plugin that fails.
func (r *Runner) Check(ctx context.Context, a attach.Attachment, prev json.RawMessage) error {
	if !atLeast(a.Config, "0.4.0") || a.Config.DisableCheck() {
		return nil
	}
	known, err := resultAs(a.Config.CNIVersion(), prev)
	if err != nil {
		return fmt.Errorf("the recorded result of network %s is not a CNI result: it %w", a.Network, err)
	}
	for _, p := range a.Config.Plugins() {
		if _, err := r.run(ctx, r.call("CHECK", a, p, known)); err != nil {
			return err
		}
	}
	return nil
}

// Status is attach.Runner's. It ends at the first plugin that fails, so that one
// code is the answer.
func (r *Runner) Status(ctx context.Context, config cniconf.Config) error {
	if !atLeast(config, "1.1.0") {
		return nil
	}
	for _, p := range config.Plugins() {
		if _, err := r.run(ctx, call{verb: "STATUS", plugin: p.Type, stdin: config.Stdin(p, nil, nil)}); err != nil {
			return err
		}
	}
	return nil
}

// GC is attach.Runner's. All plugins are called; networks with disableGC succeed
// without running. The list goes in under both of its names, that of the
// specification and the one that plugins were built with first.
func (r *Runner) GC(ctx context.Context, config cniconf.Config, valid []types.GCAttachment) error {
	if !atLeast(config, "1.1.0") || config.DisableGC() {
		return nil
	}
	list := cniconf.Quote(append([]types.GCAttachment{}, valid...)) // none is [], not null
	extra := map[string]json.RawMessage{"cni.dev/valid-attachments": list, "cni.dev/attachments": list}
	var errs []error
	for _, p := range config.Plugins() {
		_, err := r.run(ctx, call{verb: "GC", plugin: p.Type, stdin: config.Stdin(p, nil, extra)})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// call is one call of one plugin.
type call struct {
	verb    string
	plugin  string   // type
	overlay []string // on the environment of all calls
	env     []string // CNI_ variables of the attachment
	stdin   []byte
	lock    attach.Lock // may be nil
}

func (r *Runner) call(verb string, a attach.Attachment, p cniconf.Plugin, prev json.RawMessage) call {
	var extra map[string]json.RawMessage
	if prev != nil {
		extra = map[string]json.RawMessage{"prevResult": prev}
	}
	pairs := make([]string, len(a.Args))
	for i, arg := range a.Args {
		pairs[i] = arg[0] + "=" + arg[1]
	}
	return call{
		verb: verb, plugin: p.Type, lock: a.Lock, overlay: a.Env,
		stdin: a.Config.Stdin(p, a.CapabilityArgs, extra),
		env: []string{
			"CNI_CONTAINERID=" + a.Sandbox.ContainerID,
			"CNI_NETNS=" + a.Sandbox.NetNS,
			"CNI_IFNAME=" + a.Interface,
			"CNI_ARGS=" + strings.Join(pairs, ";"),
		},
	}
}

// environment is the whole environment of a call: the base without what the
// protocol defines, for a variable of another call must not reach GC and STATUS.
func (r *Runner) environment(c call) []string {
	var env []string
	for _, v := range slices.Concat(r.Env, c.overlay) { // of a name that comes twice the last counts (os/exec)
		switch name, _, _ := strings.Cut(v, "="); name {
		case "CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH":
		default:
			env = append(env, v)
		}
	}
	env = append(env, "CNI_COMMAND="+c.verb, "CNI_PATH="+strings.Join(r.Path, string(os.PathListSeparator)))
	return append(env, c.env...)
}

// atLeast compares the configuration's version. One that cannot be read counts as
// older than all: the plugin itself tells what is wrong with it.
func atLeast(config cniconf.Config, want string) bool {
	ok, err := version.GreaterThanOrEqualTo(config.CNIVersion(), want)
	return err == nil && ok
}
