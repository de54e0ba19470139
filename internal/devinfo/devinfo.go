package devinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/hostroot"
)

// The folders on the host (contract 1.9). What is in run may be a link that only the
// host's root can follow; the others are made here.
const (
	run     = "/var/run"
	base    = "k8s.cni.cncf.io/devinfo"
	plugins = "dp"
	cni     = "cni"
)

// maxSize bounds what goes into a pod's annotation.
const maxSize = 16 << 10

// Files are the host's, whose root is at Root; empty on the host itself.
type Files struct{ Root string }

// Begin is attach.DeviceInfo's.
func (f Files) Begin(file, resource, deviceID string) error {
	return f.within(func(dir string) error {
		if err := remove(at(dir, file)); err != nil {
			return err
		}
		// The folder is made for the plugins, too.
		if err := os.MkdirAll(filepath.Join(dir, cni), 0o755); err != nil {
			return err
		}
		if resource == "" || deviceID == "" {
			return nil
		}
		info, err := read(filepath.Join(dir, plugins, strings.ReplaceAll(resource+"-"+deviceID, "/", "-")+"-device.json"))
		if err != nil || info == nil {
			return err
		}
		return atomicfile.Write(at(dir, file), info, 0o644)
	})
}

// Read is attach.DeviceInfo's.
func (f Files) Read(file string) (info json.RawMessage, err error) {
	err = f.within(func(dir string) error {
		info, err = read(at(dir, file))
		return err
	})
	return info, err
}

// Remove is attach.DeviceInfo's.
func (f Files) Remove(file string) error {
	return f.within(func(dir string) error { return remove(at(dir, file)) })
}

// within gives do the path of the folder base, as this process can use it.
func (f Files) within(do func(dir string) error) error {
	folder, err := hostroot.Open(f.Root, run, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer folder.Close()
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), base))
}

// at is the path of an attachment's file: whatever folder it names, it is in ours.
func at(dir, file string) string { return filepath.Join(dir, cni, filepath.Base(file)) }

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the JSON object in a file, nil for no file.
func read(path string) (json.RawMessage, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	name := filepath.Base(path)
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s is larger than %d KiB", name, maxSize>>10)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("%s is no JSON object: %w", name, err)
	}
	if object == nil { // null
		return nil, nil
	}
	return text, nil
}
