// Package logging makes the structured logger of a program from its configuration:
// Multus v4's four levels, a rotated file, stderr. It holds no logger itself; the
// assemblies in cmd hand one down.
package logging

import (
	"errors"
	"io"
	"log/slog"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/multus-thick/multus/internal/config"
)

// LevelPanic is v4's highest level: at it only what ends the program is logged.
const LevelPanic = slog.Level(12)

// levels are v4's names; verbose is what others call info.
var levels = map[string]slog.Level{"panic": LevelPanic, "error": slog.LevelWarn, "verbose": slog.LevelInfo, "debug": slog.LevelDebug}

// ForPlugin is New for a program that runs for one pod. It leaves rotated files as they
// are, for it would end while it compresses them, and the next one would begin again.
func ForPlugin(cfg *config.Config, stderr io.Writer, toStderr bool) (*slog.Logger, io.Closer) {
	own := *cfg
	own.LogOptions.Compress = false
	return New(&own, stderr, toStderr)
}

// New makes a logger as cfg says. toStderr is what counts where cfg does not say.
// Closing the closer flushes the file. Without a file and without stderr, nothing
// is logged.
func New(cfg *config.Config, stderr io.Writer, toStderr bool) (*slog.Logger, io.Closer) {
	var out []io.Writer
	var closer io.Closer = io.NopCloser(nil)
	if cfg.LogToStderr != nil {
		toStderr = *cfg.LogToStderr
	}
	if toStderr {
		out = append(out, stderr)
	}
	if cfg.LogFile != "" {
		file := &lumberjack.Logger{
			Filename: cfg.LogFile, MaxAge: cfg.LogOptions.MaxAge, MaxSize: cfg.LogOptions.MaxSize,
			MaxBackups: cfg.LogOptions.MaxBackups, Compress: cfg.LogOptions.Compress,
		}
		out, closer = append(out, shared{file}), file
	}
	if len(out) == 0 {
		return slog.New(slog.DiscardHandler), closer
	}
	options := &slog.HandlerOptions{Level: Level(cfg.LogLevel), ReplaceAttr: v4Names}
	w := io.MultiWriter(out...)
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), closer
	}
	return slog.New(slog.NewTextHandler(w, options)), closer
}

// shared is a file that other processes write and rotate too: the plugins of a node, and
// the daemon. Each line opens it anew, to be appended to the file that has the name now.
type shared struct{ *lumberjack.Logger }

// Write is io.Writer's.
func (s shared) Write(line []byte) (int, error) {
	// Lumberjack would empty a file that it does not find and another process has just made.
	if f, err := os.OpenFile(s.Filename, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
	n, err := s.Logger.Write(line)
	return n, errors.Join(err, s.Close())
}

// Level is the level of a v4 name; error where it is empty or unknown.
func Level(name string) slog.Level {
	if l, ok := levels[name]; ok {
		return l
	}
	return slog.LevelWarn
}

// v4Names prints the level under its v4 name. Warnings keep their own, and pass
// where errors do: v4 logged them at the level of errors.
func v4Names(_ []string, a slog.Attr) slog.Attr {
	if a.Key != slog.LevelKey {
		return a
	}
	switch level, _ := a.Value.Any().(slog.Level); {
	case level >= LevelPanic:
		return slog.String(a.Key, "panic")
	case level >= slog.LevelError:
		return slog.String(a.Key, "error")
	case level >= slog.LevelWarn:
		return slog.String(a.Key, "warning")
	case level >= slog.LevelInfo:
		return slog.String(a.Key, "verbose")
	default:
		return slog.String(a.Key, "debug")
	}
}
