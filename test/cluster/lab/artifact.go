package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outDir stands for the artifact's folder in a step's arguments and environment.
const outDir = "$OUT"

// artifact is a folder of the cache that is built once from its inputs.
type artifact struct {
	Name   string
	Inputs []string // files, by path below the checkout
	Steps  []step
}

// step is a command that does a part of the work.
type step struct {
	Dir  string   // where it runs, below the checkout; empty is the artifact's folder
	Env  []string // in addition to the caller's
	Args []string
}

// key tells two artifacts apart: by what is done, with which inputs and which Go.
func (a artifact) key(source string) (string, error) {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode([]any{a, runtime.Version(), runtime.GOARCH}); err != nil {
		return "", fmt.Errorf("%s: %w", a.Name, err)
	}
	for _, name := range a.Inputs {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("%s is built from a checkout: %w", a.Name, err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// cache is the folder of built artifacts.
type cache struct {
	dir    string
	source string
	report func(format string, args ...any)
}

// get returns the artifact's folder, and builds it where it is not there yet.
func (c cache) get(ctx context.Context, a artifact) (string, error) {
	key, err := a.key(c.source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.dir, a.Name+"-"+key)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // built while we waited
		return dir, nil
	}
	begin := time.Now()
	// Under the lock, what is there has been left by a build that was killed.
	building := filepath.Join(c.dir, "building")
	if err := errors.Join(os.RemoveAll(building), os.Mkdir(building, 0o755)); err != nil {
		return "", fmt.Errorf("%s: %w", a.Name, err)
	}
	for _, s := range a.Steps {
		if err := c.run(ctx, s, building); err != nil {
			return "", fmt.Errorf("building %s: %w", a.Name, err)
		}
	}
	if err := os.Rename(building, dir); err != nil {
		return "", fmt.Errorf("%s: %w", a.Name, err)
	}
	c.report("%s built in %.0f s", a.Name, time.Since(begin).Seconds())
	return dir, nil
}

// lock waits until no other process builds into the cache.
func (c cache) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("the cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the cache: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
	}
	return func() { f.Close() }, nil
}

func (c cache) run(ctx context.Context, s step, out string) error {
	args := replaceAll(s.Args, outDir, out)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = out
	if s.Dir != "" {
		cmd.Dir = filepath.Join(c.source, s.Dir)
	}
	cmd.Env = append(os.Environ(), replaceAll(s.Env, outDir, out)...)
	return runQuietly(cmd)
}

func replaceAll(texts []string, old, with string) []string {
	replaced := make([]string, len(texts))
	for i, text := range texts {
		replaced[i] = strings.ReplaceAll(text, old, with)
	}
	return replaced
}

// runQuietly ends with us, and its error has the end of what it said.
func runQuietly(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, tail(said))
	}
	return nil
}

// tail is the end of a command's output.
func tail(output []byte) string {
	const most = 2000
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	return text
}
