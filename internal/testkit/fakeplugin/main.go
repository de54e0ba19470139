// Command fakeplugin is a CNI plugin for tests: it makes nothing, logs each call, and
// talks, sleeps, waits, holds memory, fails or answers as its own configuration says:
//
//	{"type": "fake", "name": "net-a", "cniVersion": "1.0.0", "fake": {"log": "/tmp/x/log", "ADD": {"sleep": "100ms"}}}
//
// The node suite (test/node) and the benches build it. It is in no image.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Line is one line of the log: a call begins, and, unless it is killed, ends.
type Line struct {
	Time      time.Time       `json:"time"`
	End       bool            `json:"end,omitempty"`
	PID       int             `json:"pid"`
	Network   string          `json:"network"`
	Command   string          `json:"command"`
	Container string          `json:"container"`
	IfName    string          `json:"ifname"`
	NetNS     string          `json:"netns"`
	Args      string          `json:"args"`
	Path      string          `json:"path"`
	Stdin     json.RawMessage `json:"stdin,omitempty"`
}

// Step is what a call does, in the order of its fields.
type Step struct {
	Say       int             `json:"say"`       // KiB on stderr, in lines of 1 KiB
	Hold      int             `json:"hold"`      // MiB, for as long as the call lasts
	Sleep     string          `json:"sleep"`     // a duration
	WaitFor   string          `json:"waitFor"`   // go on when this file exists, or its folder is gone
	FailWhile string          `json:"failWhile"` // error counts only while this file exists
	Error     *types.Error    `json:"error"`
	Result    json.RawMessage `json:"result"` // of ADD; prevResult or an empty result where absent
}

type conf struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	PrevResult json.RawMessage `json:"prevResult"`
	Fake       map[string]json.RawMessage
}

func main() { os.Exit(run(os.Getenv("CNI_COMMAND"))) }

func run(command string) int {
	if command == "VERSION" {
		return answer(version.All)
	}
	stdin, err := io.ReadAll(os.Stdin)
	var c conf
	var log string
	var step Step
	if err == nil {
		err = json.Unmarshal(stdin, &c)
	}
	for key, into := range map[string]any{"log": &log, command: &step} {
		if raw, ok := c.Fake[key]; ok && err == nil {
			err = json.Unmarshal(raw, into)
		}
	}
	if err != nil {
		return fail(types.NewError(types.ErrDecodingFailure, "the fake plugin's configuration", err.Error()))
	}
	line := Line{
		PID: os.Getpid(), Network: c.Name, Command: command, Container: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME"),
		NetNS: os.Getenv("CNI_NETNS"), Args: os.Getenv("CNI_ARGS"), Path: os.Getenv("CNI_PATH"), Stdin: stdin,
	}
	write(log, line)
	held := step.wait()
	line.End, line.Stdin = true, nil
	write(log, line)
	runtime.KeepAlive(held)
	if step.Error != nil && (step.FailWhile == "" || exists(step.FailWhile)) {
		return fail(step.Error)
	}
	if command != "ADD" {
		return 0
	}
	for _, result := range []json.RawMessage{step.Result, c.PrevResult, fmt.Appendf(nil, `{"cniVersion":%q}`, c.CNIVersion)} {
		if result != nil {
			return answer(result)
		}
	}
	return 0
}

// wait does all that takes time, and returns the memory that it holds.
func (s Step) wait() []byte {
	for range s.Say {
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1023))
	}
	memory := make([]byte, s.Hold<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	if pause, err := time.ParseDuration(s.Sleep); err == nil {
		time.Sleep(pause)
	}
	for s.WaitFor != "" && !exists(s.WaitFor) && exists(filepath.Dir(s.WaitFor)) {
		time.Sleep(5 * time.Millisecond)
	}
	return memory
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// write adds a line to the log that the test has made: one write, for others write too.
func write(log string, l Line) {
	l.Time = time.Now()
	raw, err := json.Marshal(l)
	if err != nil {
		return
	}
	if f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0); err == nil {
		_, _ = f.Write(append(raw, '\n'))
		_ = f.Close()
	}
}

func answer(v any) int {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return 1
	}
	return 0
}

func fail(e *types.Error) int {
	answer(e)
	return 1
}
