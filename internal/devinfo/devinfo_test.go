package devinfo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/testkit/check"
)

var _ attach.DeviceInfo = Files{}

const file = "/var/run/k8s.cni.cncf.io/devinfo/cni/app-net-a-c0ffee_net1"

// host makes a host's root, whose /var/run is a link that only the host can follow, as on
// most nodes, and returns its folder of device information.
func host(c check.T) (Files, string) {
	root := c.TempDir()
	c.Must(os.MkdirAll(filepath.Join(root, "run"), 0o755))
	c.Must(os.Mkdir(filepath.Join(root, "var"), 0o755))
	c.Must(os.Symlink("/run", filepath.Join(root, "var/run")))
	return Files{Root: root}, filepath.Join(root, "run", base)
}

// TestT25DevicePluginsInfo is handed on to the CNI plugins, whose word is the last, and
// is cleaned up.
func TestT25DevicePluginsInfo(t *testing.T) {
	c := check.T{T: t}
	f, dir := host(c)
	c.Must(os.MkdirAll(filepath.Join(dir, plugins), 0o755))
	const dp = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:02.1"}}`
	c.Must(os.WriteFile(filepath.Join(dir, plugins, "intel.com-vf-0000:03:02.1-device.json"), []byte(dp), 0o644))
	read := func() string {
		info, err := f.Read(file)
		c.Must(err)
		return string(info)
	}
	own := filepath.Join(dir, cni, filepath.Base(file))

	c.Must(f.Begin(file, "intel.com/vf", "0000:03:02.1"))
	c.Same("the device plugin's", dp, read())
	const said = `{"type":"vdpa","version":"1.1.0"}`
	c.Must(os.WriteFile(own, []byte(said), 0o600))
	c.Same("the CNI plugin's", said, read())
	c.Must(f.Begin(file, "intel.com/vf", "another"))
	c.Same("of a device that nobody speaks of, after an earlier ADD", "", read())
	c.Must(os.WriteFile(own, []byte(said), 0o600))
	c.Must(f.Begin(file, "", ""))
	c.Same("without a device, after an earlier ADD", "", read())
	c.Must(os.WriteFile(own, []byte(said), 0o600))
	for range 2 {
		c.Must(f.Remove(file))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	c.Must(err)
	c.Same("what is left", []string{filepath.Join(dir, plugins, "intel.com-vf-0000:03:02.1-device.json")}, left)
}

// TestT25NothingThere: no folder is as good as no file.
func TestT25NothingThere(t *testing.T) {
	c := check.T{T: t}
	f, dir := host(c)
	c.Must(f.Remove(file))
	info, err := f.Read(file)
	c.Must(err)
	c.Same("what is said", json.RawMessage(nil), info)
	c.Must(f.Begin(file, "x/y", "1"))
	_, err = os.Stat(filepath.Join(dir, cni)) // plugins do not make it
	c.Must(err)
}

// TestR1WhatIsNoDeviceInfo must not get into a pod's annotation.
func TestR1WhatIsNoDeviceInfo(t *testing.T) {
	c := check.T{T: t}
	f, dir := host(c)
	c.Must(f.Begin(file, "", ""))
	for text, wrong := range map[string]string{
		`[1]`: "is no JSON object: ", `{"type":`: "is no JSON object: ", "null": "",
		`{"type":"` + strings.Repeat("x", maxSize) + `"}`: "is larger than 16 KiB",
	} {
		c.Must(os.WriteFile(filepath.Join(dir, cni, filepath.Base(file)), []byte(text), 0o600))
		info, err := f.Read(file)
		if info != nil || wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), "app-net-a-c0ffee_net1 "+wrong)) {
			t.Errorf("%.20s: %s, %v", text, info, err)
		}
	}
}

// TestR8AFileOutsideIsOutOfReach: a record names files, and may be damaged.
func TestR8AFileOutsideIsOutOfReach(t *testing.T) {
	c := check.T{T: t}
	f, dir := host(c)
	c.Must(f.Begin(file, "", ""))
	outside := filepath.Join(dir, "important")
	c.Must(os.WriteFile(outside, []byte(`{}`), 0o600))
	c.Must(f.Remove("/var/run/k8s.cni.cncf.io/devinfo/important"))
	c.Must(f.Remove("../important"))
	_, err := os.Stat(outside)
	c.Must(err)
}
