package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/multus-thick/multus/internal/config"
)

// parse is a configuration with these keys.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// withoutTime takes the time off each line.
func withoutTime(text string) (lines []string) {
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(line, " ")
		lines = append(lines, rest)
	}
	return lines
}

// TestC1_11Levels by v4's names: what passes, and under which name. Warnings pass where
// errors do.
func TestC1_11Levels(t *testing.T) {
	said := []string{"level=panic msg=x\n", "level=error msg=x\n", "level=warning msg=x\n", "level=verbose msg=x\n", "level=debug msg=x\n"}
	for level, passes := range map[string]int{"panic": 1, "error": 3, "verbose": 4, "debug": 5, "": 3} {
		var stderr bytes.Buffer
		log, _ := New(parse(t, fmt.Sprintf(`{"logLevel":%q}`, level)), &stderr, true)
		for _, l := range []slog.Level{LevelPanic, slog.LevelError, slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
			log.Log(t.Context(), l, "x")
		}
		if diff := cmp.Diff(said[:passes], withoutTime(stderr.String())); diff != "" {
			t.Errorf("level %q (-want +got):\n%s", level, diff)
		}
	}
}

// TestC1_3WhereLogsGo: the program says where there is no key, and the key where there is.
func TestC1_3WhereLogsGo(t *testing.T) {
	for _, c := range []struct {
		keys      string
		byDefault bool
		stderr    bool
		file      bool
	}{
		{`{}`, true, true, false},
		{`{}`, false, false, false},
		{`{"logToStderr":true}`, false, true, false},
		{`{"logToStderr":false}`, true, false, false},
		{`{"logFile":"FILE"}`, true, true, true},
		{`{"logFile":"FILE"}`, false, false, true},
		{`{"logFile":"FILE","logToStderr":false}`, true, false, true},
	} {
		file := filepath.Join(t.TempDir(), "folder", "log")
		var stderr bytes.Buffer
		log, closer := New(parse(t, strings.ReplaceAll(c.keys, "FILE", file)), &stderr, c.byDefault)
		log.Error("x")
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
		inFile, _ := os.ReadFile(file)
		const line = "level=error msg=x\n"
		if got := strings.HasSuffix(stderr.String(), line); got != c.stderr || !got && stderr.Len() > 0 {
			t.Errorf("%s, by default %v: stderr has %q", c.keys, c.byDefault, stderr.String())
		}
		if got := strings.HasSuffix(string(inFile), line); got != c.file || !got && len(inFile) > 0 {
			t.Errorf("%s, by default %v: the file has %q", c.keys, c.byDefault, inFile)
		}
	}
}

// TestC1_3Rotation: the keys, and v4's defaults.
func TestC1_3Rotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for keys, want := range map[string][]any{
		`{}`: {5, 100, 5, true},
		`{"maxAge":1,"maxSize":2,"maxBackups":3,"compress":false}`: {1, 2, 3, false},
	} {
		_, closer := New(parse(t, fmt.Sprintf(`{"logFile":%q,"logOptions":%s}`, file, keys)), nil, false)
		l, ok := closer.(*lumberjack.Logger)
		if !ok {
			t.Fatalf("%s: the closer is a %T", keys, closer)
		}
		if diff := cmp.Diff(append([]any{file}, want...), []any{l.Filename, l.MaxAge, l.MaxSize, l.MaxBackups, l.Compress}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", keys, diff)
		}
	}
}

// TestC1_3RotationByManyProcesses: plugins and the daemon write one file, each with a logger
// of its own. No line is lost to another's rotation, and the space is bounded.
func TestC1_3RotationByManyProcesses(t *testing.T) {
	const loggers, lines, size = 8, 5, 100 << 10
	dir := t.TempDir()
	file := filepath.Join(dir, "log")
	cfg := parse(t, fmt.Sprintf(`{"logFile":%q,"logOptions":{"maxSize":1,"maxBackups":2,"compress":true}}`, file))
	all := make([]*slog.Logger, loggers)
	for i := range all {
		log, closer := ForPlugin(cfg, nil, false)
		defer closer.Close()
		all[i] = log
	}
	for line := range lines { // 4 MiB in all
		for i, log := range all {
			log.Error(fmt.Sprint(i, " ", line), "text", strings.Repeat("x", size))
		}
	}
	var said []string
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1<<20 || len(text) == 0 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		for line := range strings.Lines(string(text)) {
			if len(line) < size || !strings.HasSuffix(line, "xxx\n") || strings.Count(line, "time=") != 1 {
				t.Errorf("a damaged line of %d bytes: %.100q", len(line), line)
				continue
			}
			said = append(said, line[strings.Index(line, "msg="):strings.Index(line, " text=")])
		}
	}
	if len(said) < 20 || len(names) > 4 {
		t.Errorf("%d lines are left in %q", len(said), names)
	}
}

// TestI2_OneLineEach, whatever is in it: what pods and plugins say cannot look like a line of ours.
func TestI2_OneLineEach(t *testing.T) {
	var stderr bytes.Buffer
	log, _ := New(parse(t, `{}`), &stderr, true)
	const forged = "x\nlevel=error msg=forged\r\n\x1b[2J\u2028"
	log.Error(forged, "pod", forged, forged, "value", "error", fmt.Errorf("%s", forged))
	log.Error("ends with a newline\n")
	const quoted = `"x\nlevel=error msg=forged\r\n\x1b[2J\u2028"`
	want := []string{
		"level=error msg=" + quoted + " pod=" + quoted + " " + quoted + "=value error=" + quoted + "\n",
		`level=error msg="ends with a newline\n"` + "\n",
	}
	if diff := cmp.Diff(want, withoutTime(stderr.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestI4_JSON: one object a line, with v4's levels, whatever is in it.
func TestI4_JSON(t *testing.T) {
	var stderr bytes.Buffer
	log, _ := New(parse(t, `{"logFormat":"json","logLevel":"debug"}`), &stderr, true)
	log.Log(t.Context(), LevelPanic, "x")
	log.Warn("x\nlevel=error \u2028", "pod", "app/web", "millis", 12, "error", fmt.Errorf("two\nlines"))
	log.Info("x")
	log.Debug("x")
	want := []string{
		`"level":"panic","msg":"x"}` + "\n",
		`"level":"warning","msg":"x\nlevel=error \u2028","pod":"app/web","millis":12,"error":"two\nlines"}` + "\n",
		`"level":"verbose","msg":"x"}` + "\n",
		`"level":"debug","msg":"x"}` + "\n",
	}
	var got []string
	for line := range strings.Lines(stderr.String()) {
		begin, rest, _ := strings.Cut(line, ",")
		if !strings.HasPrefix(begin, `{"time":"20`) {
			t.Errorf("no time: %s", line)
		}
		got = append(got, rest)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
