package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever a pod does, and however often it is tried again: at the most talkative level an
// ADD and its DEL leave a few lines of daemon and plugin, and no configuration among them.
func TestI2_LogVolume(t *testing.T) {
	const mostLines, mostBytes = 8, 12 << 10  // of an ADD and its DEL
	const toldLines, toldBytes = 34, 36 << 10 // of a delegate's own words, 16 KiB a call
	huge := strings.Repeat("S3CRET", 30000)
	failure := object{"code": 100, "msg": huge, "details": huge}
	for name, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, primary: quick, settings: object{"addTimeout": "1s"}})
			n.nad("large", object{"cniVersion": "1.0.0", "name": "large", "type": "fake", "fake": n.script(nil), "password": huge})
			n.nad("odd-type", object{"cniVersion": "1.0.0", "name": "odd", "type": huge})
			n.nad("odd-name", object{"cniVersion": "1.0.0", "name": huge, "type": "fake"})
			n.api.PutNAD(metav1.ObjectMeta{Namespace: podNamespace, Name: "broken"}, `{"cniVersion":"1.0.0","name":"broken","password":"`+huge)
			n.nad("failing", n.fake("failing", object{"ADD": object{"error": failure}, "DEL": object{"error": failure}}))
			n.nad("talking", n.fake("talking", object{"ADD": object{"say": 1024}, "DEL": object{"say": 1024}}))
			n.nad("hanging", n.fake("hanging", object{"ADD": object{"waitFor": n.path("never")}}))
			try := func(what, networks string) {
				p := n.pod(what, selecting(networks))
				p.Annotations["password"] = huge
				beforeLines, beforeBytes := n.logged()
				_, _ = n.add(p)
				_ = n.del(p)
				lines, bytes := n.logged()
				lines, bytes = lines-beforeLines, bytes-beforeBytes
				if what == "talking" {
					lines, bytes = lines-toldLines, bytes-toldBytes
				}
				if lines < 1 || lines > mostLines || bytes > mostBytes {
					t.Errorf("%s: %d lines and %d bytes, want 1 to %d lines and %d bytes at most", what, lines, bytes, mostLines, mostBytes)
				}
			}
			try("plain", "")
			try("large", "large")
			if all := n.logs(); strings.Contains(all, "S3CRET") {
				t.Errorf("a part of a configuration is logged: %.300q", all[strings.Index(all, "S3CRET")-100:])
			}
			for _, what := range []string{"odd-type", "odd-name", "broken", "failing", "talking", "hanging", "absent"} {
				try(what, what)
			}
			try("odd-annotation", huge)
			try("odd-json", `[{"name":"`+huge)
			try("many", strings.TrimSuffix(strings.Repeat("absent,", 1000), ","))
			if !thin {
				n.stopDaemon(syscall.SIGKILL)
				try("alone", "large")
			}
		})
	}
}

// logs are what daemon and plugins have logged.
func (n *node) logs() (all string) {
	for _, name := range []string{"daemon.log", "plugin.log"} {
		raw, err := os.ReadFile(n.path(name))
		if err == nil { // the thin installation has no daemon
			all += string(raw)
		}
	}
	return all
}

func (n *node) logged() (lines, bytes int) {
	all := n.logs()
	return strings.Count(all, "\n"), len(all)
}

// Daemon and plugins write one file, many at once, and each may rotate it.
func TestC1_3LogRotation(t *testing.T) {
	const maxSize, maxBackups, chained = 1 << 20, 2, 24
	n := newNode(t, setup{noDaemon: true, primary: quick})
	n.settings["logToStderr"], n.settings["logFile"] = false, n.path("logs/multus.log")
	n.settings["logOptions"] = object{"maxSize": 1, "maxBackups": maxBackups}
	n.startDaemon()
	talking := object{"type": "fake", "fake": n.script(object{"ADD": object{"say": 16}})}
	n.nad("talking", object{"cniVersion": "1.0.0", "name": "talking", "plugins": slices.Repeat([]any{talking}, chained)})
	var pods []*pod
	for i := range 16 {
		pods = append(pods, n.pod(fmt.Sprintf("p%d", i), selecting("talking")))
	}
	inParallel(pods, func(p *pod) {
		if _, err := n.add(p); err != nil {
			t.Error(err)
		}
	})
	last := n.pod("last", nil)
	n.attach(last)
	n.eventually(func() error { // the report of a plain pod is not waited for
		if got := strings.Count(n.read("logs/multus.log"), " msg=ADD pod=default/last "); got != 2 {
			return fmt.Errorf("%d lines of the last ADD, want the daemon's and the plugin's", got)
		}
		return nil
	})
	files := n.entries("logs")
	if len(files) < 1+maxBackups || len(files) > 1+maxBackups+1 { // a plugin may end before it has removed one
		t.Errorf("files of the log: %q", files)
	}
	for _, name := range files {
		if filepath.Ext(name) != ".log" {
			continue // the daemon compresses
		}
		all := n.read("logs/" + name)
		if len(all) > maxSize {
			t.Errorf("%s has %d bytes, want %d at most", name, len(all), maxSize)
		}
		for line := range strings.Lines(all) {
			if !strings.HasPrefix(line, "time=") || !strings.HasSuffix(line, "\n") || strings.Count(line, "time=") != 1 {
				t.Errorf("%s has a damaged line: %.100q", name, line)
			}
		}
	}
}
