package cnirun

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// bounded is a plugin's stdout. It refuses what is too much, which ends the plugin.
type bounded struct {
	bytes.Buffer
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxStdout {
		b.full = true
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}

// ReadFrom hides bytes.Buffer's, which would pass by the limit.
func (b *bounded) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, src)
}

// sink is where the stderr of all plugins goes; they may run at the same time.
type sink struct {
	mu  sync.Mutex
	out io.Writer // may be nil
}

// lines is the stderr of one call: it writes whole lines to the sink until they are
// too many, and keeps the last few for an error message.
type lines struct {
	to      *sink
	prefix  string
	part    []byte
	last    []string
	told    int // bytes
	dropped int // lines
}

const (
	maxLine   = 4096
	maxTold   = 16 << 10 // of one call: pods that fail are tried again and again
	keptLines = 3
)

func (s *sink) lines(c call) *lines {
	return &lines{to: s, prefix: "plugin " + c.plugin + " (" + c.verb + "): "}
}

func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		end := bytes.IndexByte(l.part, '\n')
		if end < 0 && len(l.part) < maxLine {
			return len(p), nil
		}
		if end < 0 || end > maxLine {
			end = maxLine - 1
		}
		l.emit(l.part[:end+1])
		l.part = l.part[end+1:]
	}
}

// flush writes a last line that has no end, and tells of lines that were too many.
func (l *lines) flush() {
	l.emit(l.part)
	l.part = nil
	if l.dropped > 0 {
		l.tell(fmt.Sprintf("(%d lines more are not logged)", l.dropped))
	}
}

func (l *lines) emit(line []byte) {
	text := oneLine(string(line), maxLine)
	if text == "" {
		return
	}
	l.last = append(l.last, text)
	l.last = l.last[max(0, len(l.last)-keptLines):]
	if l.told += len(text); l.told > maxTold {
		l.dropped++
		return
	}
	l.tell(text)
}

func (l *lines) tell(text string) {
	if l.to.out == nil {
		return
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, _ = io.WriteString(l.to.out, l.prefix+text+"\n") // a plugin must not fail because its log cannot be written
}

// lastWords are the last lines as one.
func (l *lines) lastWords() string { return oneLine(strings.Join(l.last, " | "), 512) }
