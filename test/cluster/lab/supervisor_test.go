package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// supervisorSpec has one program that runs on, one that does not heed SIGTERM and
// leaves an orphan, and one that waits for a socket.
var supervisorSpec = spec{Path: "/usr/bin:/bin", Programs: []program{
	{Name: "steady", Args: []string{"sleep", "1000"}},
	{Name: "stubborn", Args: []string{"sh", "-c", "trap '' TERM; (sleep 0.01 & ); echo it runs; while :; do sleep 1000; done"}},
	{Name: "late", After: "unix:late.sock", Args: []string{"sleep", "1000"}},
}}

// startSupervisor starts a supervisor in a temporary folder.
func startSupervisor(t *testing.T) (dir string, pid int, post func(path string) error, list func() []Program) {
	t.Helper()
	dir = t.TempDir()
	socket := filepath.Join(dir, "init.sock")
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName, socket, dir}, Dir: dir, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	post = func(path string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := request(ctx, socket, http.MethodPost, path)
		return err
	}
	list = func() []Program {
		var programs []Program
		until(t, func() error {
			text, err := request(t.Context(), socket, http.MethodGet, "/programs")
			return errors.Join(err, json.Unmarshal(text, &programs))
		})
		return programs
	}
	return dir, cmd.Process.Pid, post, list
}

func until(t *testing.T, try func() error) {
	t.Helper()
	if err := poll(t.Context(), 20*time.Second, func(context.Context) error { return try() }); err != nil {
		t.Fatal(err)
	}
}

// TestI3_SupervisorKeepsWhatIsWanted: the programs of a machine run, are started again
// after they end, and stay stopped when told so.
func TestI3_SupervisorKeepsWhatIsWanted(t *testing.T) {
	dir, _, post, list := startSupervisor(t)
	expect := func(want ...Program) {
		t.Helper()
		until(t, func() error {
			got := list()
			for i := range got { // a pid is any number
				got[i].PID = min(got[i].PID, 1)
			}
			if d := cmp.Diff(want, got); d != "" {
				return errors.New(d)
			}
			return nil
		})
	}
	do := func(path string) {
		t.Helper()
		if err := post(path); err != nil {
			t.Fatal(err)
		}
	}
	late := Program{Name: "late"}
	expect(Program{Name: "steady"}, Program{Name: "stubborn"}, late)
	do("/programs/steady/start")
	do("/programs/stubborn/start")
	expect(Program{Name: "steady", Wanted: true, PID: 1, Starts: 1}, Program{Name: "stubborn", Wanted: true, PID: 1, Starts: 1}, late)
	do("/programs/steady/kill")
	until(t, stubbornRuns(dir))
	do("/programs/stubborn/stop") // by SIGKILL, in the end
	expect(Program{Name: "steady", Wanted: true, PID: 1, Starts: 2}, Program{Name: "stubborn", Starts: 1}, late)
	do("/programs/stubborn/start")
	do("/programs/steady/stop")
	expect(Program{Name: "steady", Starts: 2}, Program{Name: "stubborn", Wanted: true, PID: 1, Starts: 2}, late)

	var refusals []string
	for _, path := range []string{"/programs/steady/kill", "/programs/unknown/start"} {
		refusals = append(refusals, fmt.Sprint(post(path)))
	}
	if d := cmp.Diff([]string{"steady does not run", `there is no program "unknown"`}, refusals); d != "" {
		t.Error(d)
	}
}

// TestI3_SupervisorWaitsForWhatAProgramNeeds: the kubelet is not started before its
// runtime listens.
func TestI3_SupervisorWaitsForWhatAProgramNeeds(t *testing.T) {
	dir, _, post, list := startSupervisor(t)
	list() // it is there
	if err := post("/programs/late/start"); err != nil {
		t.Fatal(err)
	}
	// Another is started twice meanwhile, with the delay between.
	if err := post("/programs/steady/start"); err != nil {
		t.Fatal(err)
	}
	until(t, func() error { return post("/programs/steady/kill") })
	until(t, func() error {
		if got := list()[0]; got.Starts != 2 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got, want := list()[2], (Program{Name: "late", Wanted: true}); got != want {
		t.Fatalf("%+v before the socket is there, want %+v", got, want)
	}
	listener := must(net.Listen("unix", filepath.Join(dir, "late.sock")))
	defer listener.Close()
	until(t, func() error {
		if got := list()[2]; got.Starts != 1 || got.PID == 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// TestI3_SupervisorCollectsOrphansAndLogs: what a program leaves does not stay as a
// zombie, and what it says is in its log.
func TestI3_SupervisorCollectsOrphansAndLogs(t *testing.T) {
	dir, pid, post, list := startSupervisor(t)
	list()
	if err := post("/programs/stubborn/start"); err != nil {
		t.Fatal(err)
	}
	until(t, stubbornRuns(dir))
	until(t, func() error { // the program is left, and the orphan is not
		var children []string
		for _, file := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))) {
			children = append(children, strings.Fields(string(must(os.ReadFile(file))))...)
		}
		if len(children) != 1 {
			return fmt.Errorf("children %v", children)
		}
		return nil
	})
}

// stubbornRuns says by its log whether it is so far that it does not heed SIGTERM.
func stubbornRuns(dir string) func() error {
	return func() error {
		text, err := os.ReadFile(filepath.Join(dir, "stubborn.log"))
		if string(text) != "it runs\n" {
			return errors.Join(fmt.Errorf("log %q", text), err)
		}
		return nil
	}
}
