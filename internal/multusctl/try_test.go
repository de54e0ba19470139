package multusctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// machine is what a try must not change.
func machine(t *testing.T) (state []string) {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		state = append(state, "link "+l.Name)
	}
	for _, pattern := range []string{"/run/netns/default_*", "/run/multusctl*", "/var/lib/cni", "/var/lib/cni/*", "/etc/cni/net.d/*", os.TempDir() + "/multusctl-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		state = append(state, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return append(state, fmt.Sprintf("%d mounts", strings.Count(string(mounts), "\n")))
}

// gone waits until none of the processes of a try is left: those that have its marker
// in their environment.
func gone(t *testing.T, marker string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	tooLong := time.After(30 * time.Second)
	for alive(marker) {
		select {
		case <-look.C:
		case <-tooLong:
			t.Fatal("processes of the try are still there")
		}
	}
}

func alive(marker string) bool {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	return slices.ContainsFunc(environs, func(path string) bool {
		env, err := os.ReadFile(path) // empty for a zombie
		return err == nil && bytes.Contains(env, []byte(marker))
	})
}

// program prepares a multusctl whose processes carry a marker.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, marker string) {
	t.Helper()
	marker = "MULTUSCTL_TEST=" + t.Name()
	cmd = exec.CommandContext(t.Context(), filepath.Join(bin(t), "multusctl"), args...)
	cmd.Env = append(os.Environ(), marker)
	return cmd, marker
}

// TestI2_EndsAtAnyMoment: Ctrl-C takes everything down in good order; death by force
// leaves nothing on the machine either.
func TestI2_EndsAtAnyMoment(t *testing.T) {
	const taken = "Taken down; nothing is left: no interface, no address, no record.\n"
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			before := machine(t)
			cmd, marker := program(t, "try", filepath.Join(examples(t), "three-networks"), "--exec", "echo here; exec sleep 300")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stdout)
			for line := ""; line != "here\n"; {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest := new(strings.Builder)
			if _, err := lines.WriteTo(rest); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(rest.String(), taken) {
				t.Errorf("after the signal: %q", rest)
			}
			_ = cmd.Wait()
			if sig != syscall.SIGKILL && (cmd.ProcessState.ExitCode() != 1 || stderr.String() != "multusctl: interrupted\n") {
				t.Errorf("%s, stderr %q", cmd.ProcessState, stderr.String())
			}
			gone(t, marker)
			if diff := cmp.Diff(before, machine(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestI2_NodeKilled: with the node's first process the kernel ends the rest.
func TestI2_NodeKilled(t *testing.T) {
	before := machine(t)
	pid, marker := keep(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, marker)
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Error(diff)
	}
}

// keep runs a try with --keep, which returns while the node stays.
func keep(t *testing.T) (pid int, marker string) {
	t.Helper()
	cmd, marker := program(t, "try", filepath.Join(examples(t), "tuning"), "--keep", "-o", "json")
	out, err := cmd.Output() // returns only when nobody holds the pipe
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil || r.Kept == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if alive(marker) {
			_ = syscall.Kill(r.Kept, syscall.SIGKILL)
		}
	})
	return r.Kept, marker
}

func TestI2_KeptNode(t *testing.T) {
	before := machine(t)
	pid, marker := keep(t)
	inside := exec.CommandContext(t.Context(), "nsenter", "-t", fmt.Sprint(pid), "-m", "-n", "-p",
		"ip", "netns", "exec", "default_gateway", "ip", "-br", "address", "show", "net1")
	out, err := inside.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "192.168.20.7/24") {
		t.Errorf("looking into the pod: %v: %s", err, out)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	gone(t, marker)
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Error(diff)
	}
}

func TestI2_ExecChoosesItsPod(t *testing.T) {
	var pods []gather.Pod
	for _, p := range []plan.Pod{{Namespace: "a", Name: "web"}, {Namespace: "a", Name: "db"}, {Namespace: "b", Name: "db"}} {
		pods = append(pods, gather.Pod{Subject: plan.Subject{Pod: p}})
	}
	got, err := podCommands([]string{"ip a", "web=ip a", "b/db=x=1 env", "FOO=bar env", "a/web="}, pods)
	want := []podCommand{{"a/web", "ip a"}, {"a/web", "ip a"}, {"b/db", "x=1 env"}, {"a/web", "FOO=bar env"}, {"a/web", ""}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	_, err = podCommands([]string{"db=ip a"}, pods)
	if err == nil || err.Error() != `flag --exec "db=ip a": a/db and b/db are both meant; name the namespace too` {
		t.Error(err)
	}
}
