package nodestate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/hostroot"
)

// logTail is how much of a log's end goes into a bundle.
const logTail = 256 << 10

// Bundle writes a gzipped tar archive of how the node stands, for those who are asked for
// help. It holds no kubeconfig, no configuration of a network that a pod selects, and of the
// others nothing that may be secret. What cannot be had says so in its place.
func Bundle(ctx context.Context, w io.Writer, s State, findings []Finding, now time.Time) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		header := tar.Header{Name: "multus-bundle/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: now}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	err := errors.Join(
		add("versions.txt", versions(ctx, s)),
		add("status.json", indented(s)),
		add("doctor.json", indented(findings)),
		add("readyz.txt", get(ctx, s, api.PathReadyz)),
		add("metrics.txt", get(ctx, s, api.PathMetrics)),
	)
	if s.Config.content != nil {
		err = errors.Join(err, add(s.Config.Generated, redact(s.Config.content)))
	}
	if conf := s.Config.Primary.conf; conf != nil {
		err = errors.Join(err, add("primary.json", redact(conf.Bytes())))
	}
	if c := s.Config.parsed; c != nil && c.LogFile != "" {
		err = errors.Join(err, add("plugin.log", tail(s.Paths, c.LogFile)))
	}
	return errors.Join(err, archive.Close(), zip.Close())
}

func indented(value any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return []byte(err.Error())
	}
	return out.Bytes()
}

func versions(ctx context.Context, s State) []byte {
	var out strings.Builder
	fmt.Fprintln(&out, "multusctl:", s.Version)
	if s.Daemon.State != nil {
		fmt.Fprintln(&out, "multus-daemon:", s.Daemon.State.Version)
	}
	for _, plugin := range []string{"multus-shim", "multus"} {
		path := filepath.Join(s.Paths.BinDir, plugin)
		if !exists(path) {
			continue
		}
		version, err := pluginVersion(ctx, path)
		if err != nil {
			version = err.Error()
		}
		fmt.Fprintln(&out, plugin+":", version)
	}
	var kernel unix.Utsname
	if unix.Uname(&kernel) == nil {
		fmt.Fprintln(&out, "kernel:", unix.ByteSliceToString(kernel.Release[:]), unix.ByteSliceToString(kernel.Machine[:]))
	}
	return []byte(out.String())
}

// get asks the daemon; an error is the answer then.
func get(ctx context.Context, s State, path string) []byte {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := api.NewClient(s.Paths.SocketDir)
	defer client.Close()
	raw, err := client.Get(ctx, path)
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	if len(raw) == 0 {
		return []byte("ok\n")
	}
	return raw
}

// tail is the end of a log of the host, whole lines, without secrets.
func tail(p Paths, path string) []byte {
	text, err := end(p, path)
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	return []byte(redactLog(text))
}

func end(p Paths, path string) (string, error) {
	f, err := hostroot.Open(p.Root, path, os.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= logTail {
		text, readErr := io.ReadAll(io.LimitReader(f, logTail))
		return string(text), errors.Join(err, readErr)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, info.Size()-logTail, logTail))
	_, whole, _ := strings.Cut(string(text), "\n") // the first line is cut off
	return whole, err
}
