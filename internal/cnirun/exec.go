package cnirun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/hostroot"
)

const (
	maxStdout = 16 << 20
	// pipeGrace is how long a descendant that outlives the plugin may keep its pipes
	// open before they are closed.
	pipeGrace = 2 * time.Second
	// busyLimit is how long a binary that is just being written is waited for.
	busyLimit = 5 * time.Second
)

// process is one running call.
type process struct {
	call
	path   string // in root
	root   string
	limit  time.Duration
	stdout bounded
	stderr *lines
}

// run calls one plugin and returns its stdout. Every error is a *failure. A call
// that was ended for its time has code 11 (try again later) for every verb: nothing
// is known to be wrong, and runtimes repeat ADD and DEL.
func (r *Runner) run(ctx context.Context, c call) ([]byte, error) {
	path := r.find(c.plugin)
	if path == "" {
		return nil, r.absent(c.plugin, c.verb, exec.ErrNotFound)
	}
	lock, err := inheritable(c.lock)
	if err != nil {
		return nil, &failure{plugin: c.plugin, verb: c.verb, err: types.NewError(types.ErrInternal, "cannot inherit the sandbox's lock", err.Error()), cause: err}
	}
	defer lock.Close() // of our copy only; closing nil does nothing

	limited, cancel := ctx, context.CancelFunc(func() {})
	if r.DelegateTimeout > 0 {
		limited, cancel = context.WithTimeout(ctx, r.DelegateTimeout)
	}
	defer cancel()
	p := &process{call: c, path: path, root: r.Root, limit: r.DelegateTimeout, stderr: r.stderr.lines(c)}
	cmd, err := start(limited, func() *exec.Cmd { return p.command(limited, r.environment(c), lock) })
	if err == nil {
		err = cmd.Wait()
		p.stderr.flush()
	}
	if e, cause := p.verdict(ctx, limited, cmd.ProcessState, err); e != nil {
		answered := cmd.ProcessState != nil && cmd.ProcessState.Exited() && printed(p.stdout.Bytes()) != nil
		return nil, &failure{c.plugin, c.verb, e, cause, answered}
	}
	return p.stdout.Bytes(), nil
}

// absent is the failure of a plugin that is not there.
func (r *Runner) absent(plugin, verb string, cause error) error {
	return &failure{plugin: plugin, verb: verb, err: types.NewError(types.ErrInvalidNetworkConfig, "no executable file of this name in "+strings.Join(r.Path, ", "), ""), cause: cause}
}

func (p *process) command(ctx context.Context, env []string, lock *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.stdin), &p.stdout, p.stderr
	if p.root != "" {
		cmd.Dir = "/" // a folder outside the root would stay open to the plugin
	}
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	// A group of its own, so that the time limit reaches the plugin's children. No
	// death signal: a plugin that outlives us finishes its work under the lock.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: p.root}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = pipeGrace
	return cmd
}

// verdict says how a call ended: nil for success, else the error and its cause.
// ended is nil for a plugin that never started. A plugin that finished by itself is
// taken at its word, even if time was up just then or a descendant kept its pipes.
func (p *process) verdict(whole, limited context.Context, ended *os.ProcessState, err error) (*types.Error, error) {
	lastWords := p.stderr.lastWords()
	switch {
	case p.stdout.full:
		return types.NewError(types.ErrDecodingFailure, fmt.Sprintf("printed more than %d MiB", maxStdout>>20), lastWords), nil
	case ended != nil && ended.Success():
		return nil, nil
	case ended != nil && ended.Exited():
		return pluginError(p.stdout.Bytes(), err, lastWords), nil
	case whole.Err() != nil:
		return types.NewError(types.ErrTryAgainLater, "ended because the time of the whole operation was up or its caller left", lastWords), context.Cause(whole)
	case limited.Err() != nil:
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("ended after its time limit of %s", p.limit), lastWords), limited.Err()
	case errors.Is(err, unix.ETXTBSY):
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s is still being written after %s", p.path, busyLimit), ""), err
	case ended == nil:
		return types.NewError(types.ErrInternal, "cannot be run", err.Error()), err
	}
	return pluginError(nil, err, lastWords), nil // ended by a signal that was not ours
}

// start starts a command. While its binary is busy, because it is just being
// installed, it tries again with short pauses. The command is never nil.
func start(ctx context.Context, command func() *exec.Cmd) (*exec.Cmd, error) {
	const first, longest = 10 * time.Millisecond, 500 * time.Millisecond
	deadline := time.Now().Add(busyLimit)
	for pause := first; ; pause = min(2*pause, longest) {
		cmd := command()
		err := cmd.Start()
		if !errors.Is(err, unix.ETXTBSY) || time.Now().Add(pause).After(deadline) {
			return cmd, err
		}
		select {
		case <-ctx.Done():
			return cmd, err
		case <-time.After(pause):
		}
	}
}

func killGroup(leader int) error {
	err := unix.Kill(-leader, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// find searches the binary of a plugin type, an executable regular file; empty
// where there is none. A type with a path in it is never looked for.
func (r *Runner) find(plugin string) string {
	if plugin != filepath.Base(plugin) {
		return ""
	}
	for _, folder := range r.Path {
		path := filepath.Join(folder, plugin)
		info, err := hostroot.Stat(r.Root, path)
		if folder != "" && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// inheritable copies the lock's descriptor: a copy shares the lock, and can be
// closed after the call. Nil where there is no lock.
func inheritable(lock attach.Lock) (*os.File, error) {
	if lock == nil || lock.FD() == 0 {
		return nil, nil
	}
	fd, err := unix.FcntlInt(lock.FD(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("copying descriptor %d: %w", lock.FD(), err)
	}
	return os.NewFile(uintptr(fd), "sandbox lock"), nil
}
