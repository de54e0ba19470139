// Package script_test runs the command lines of the programs in bin/ as terminal
// sessions, *.txtar: flags, exit codes, and the one line that a user reads
// when something is wrong. `make build plugins` builds what it needs.
package script_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestT10CommandLines(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"multus", "multus-shim", "multus-daemon", "passthru", "install_multus", "thin_entrypoint", "kubeconfig_generator", "cert-approver"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("run 'make build plugins' first: %v", err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: ".",
		Setup: func(e *testscript.Env) error {
			e.Setenv("BIN", bin)
			return nil
		},
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "await": await},
	})
}

// exits runs a program that must end with a code: exits CODE program [args...].
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [args...]")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(filepath.Join(ts.Getenv("BIN"), args[1]), args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%s ended with code %d, want %s", args[1], code, args[0])
	}
}

// await waits until files are there, for 10 s at most: await FILE...
func await(ts *testscript.TestScript, _ bool, files []string) {
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		missing := slices.DeleteFunc(slices.Clone(files), func(f string) bool { _, err := os.Stat(ts.MkAbs(f)); return err == nil })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("never: %q", missing)
		}
	}
}
