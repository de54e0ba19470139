package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/manifest"
)

// PrimaryFile is the primary network's configuration in a folder.
const PrimaryFile = "primary.conflist"

// builtIn is the primary network of a folder that has none.
const builtIn = `{
  "cniVersion": "1.0.0",
  "name": "cluster",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

// Folder is what a trial is made from.
type Folder struct {
	*manifest.Folder
	Dir string
	// Warnings are one line each.
	Warnings []string
	primary  cniconf.Config
	node     cniconf.Object // daemon-config.json, empty where there is none
	master   string         // its multusMasterCNI
}

// Read takes in the pods and NetworkAttachmentDefinitions of a folder, and its files
// primary.conflist and daemon-config.json where it has them. The error has one line
// for each thing that is wrong; warnings of the files stand in the folder beside it.
func Read(dir string) (*Folder, error) {
	objects, warnings, err := manifest.Load(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{Folder: objects, Dir: dir}
	for _, w := range warnings {
		f.Warnings = append(f.Warnings, string(w))
	}
	if err := errors.Join(f.readPrimary(), f.readNode()); err != nil {
		return f, err
	}
	if len(f.Pods()) == 0 {
		return nil, fmt.Errorf("%s: no pod in its YAML files; a trial attaches pods", dir)
	}
	return f, nil
}

func (f *Folder) readPrimary() error {
	path := filepath.Join(f.Dir, PrimaryFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(builtIn), nil
	}
	if err != nil {
		return err
	}
	if f.primary, err = cniconf.Parse(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (f *Folder) readNode() error {
	path := filepath.Join(f.Dir, manifest.NodeConfigFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("{}"), nil
	}
	if err != nil {
		return err
	}
	cfg, warnings, err := config.Parse(text)
	for _, w := range warnings {
		f.Warnings = append(f.Warnings, path+": "+string(w))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.master = cfg.MultusMasterCNI
	f.node, err = cniconf.ParseObject(text)
	return err
}

// configs are all CNI configurations that the folder brings along. A definition that
// does not parse is left out: its pod's plan says what is wrong.
func (f *Folder) configs() []cniconf.Config {
	all := []cniconf.Config{f.primary}
	for _, nad := range f.Definitions() {
		if c, err := cniconf.Parse([]byte(nad.Config)); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// strings lists the different values that a key has in the plugins of all
// configurations, of the plugin itself or of the object under the key within.
func (f *Folder) strings(within, key string) []string {
	var all []string
	for _, c := range f.configs() {
		for _, p := range c.Plugins() {
			o := p.Object()
			if within != "" {
				raw, _ := o.Get(within)
				o, _ = cniconf.ParseObject(raw) // absent or no object: no value
			}
			raw, _ := o.Get(key)
			var value string
			if json.Unmarshal(raw, &value) == nil && value != "" && !slices.Contains(all, value) {
				all = append(all, value)
			}
		}
	}
	return all
}

// layout is where a node keeps its files.
type layout struct{ work string }

func (l layout) cluster() string      { return filepath.Join(l.work, "cluster") } // what stands for the API
func (l layout) confDir() string      { return filepath.Join(l.work, "net.d") }
func (l layout) socketDir() string    { return filepath.Join(l.work, "socket") }
func (l layout) daemonConfig() string { return filepath.Join(l.work, manifest.NodeConfigFile) }
func (l layout) daemonLog() string    { return filepath.Join(l.work, "daemon.log") }
func (l layout) pluginLog() string    { return filepath.Join(l.work, "plugin.log") }
func (l layout) runtimeCache() string { return filepath.Join(l.work, "runtime") }
func (l layout) pluginConf() string   { return filepath.Join(l.confDir(), "00-multus.conf") }

// write puts the folder's content where the node's daemon and plugin look for it.
// settings are the node's.
func (l layout) write(f *Folder, settings cniconf.Object) error {
	for _, dir := range []string{l.cluster(), l.confDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !manifest.IsManifest(entry) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(f.Dir, entry.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(l.cluster(), entry.Name()), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if err := os.WriteFile(l.primary(f), indented(f.primary.Bytes()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(l.daemonConfig(), indented(settings.Bytes()), 0o644)
}

// primary is the primary network's file; a node that pins another name gets that.
func (l layout) primary(f *Folder) string {
	name := "10-" + PrimaryFile
	if f.master != "" {
		name = f.master
	}
	return filepath.Join(l.confDir(), name)
}

// elsewhere are the keys of daemon-config.json that describe a place on its node, or
// what only a cluster has.
var elsewhere = []string{
	"chrootDir", "logFile", "readinessindicatorfile", "perNodeCertificate", "metricsPort", "metricsAddress", "enablePprof", "host",
}

// settings are the node settings of the folder with the trial's own places in them.
func (l layout) settings(f *Folder, binDir string) cniconf.Object {
	own := []struct {
		key   string
		value any
	}{
		{"kubeconfig", l.cluster()},
		{"multusConfigFile", config.AutoConfigFile},
		{"cniConfigDir", l.confDir()},
		{"hostCniConfigDir", l.confDir()},
		{"multusAutoconfigDir", l.confDir()},
		{"socketDir", l.socketDir()},
		{"daemonSocketDir", l.socketDir()},
		{"binDir", binDir},
		{"cniDir", ledgerDir},
		{"logToStderr", true},
	}
	replaced := slices.Clone(elsewhere)
	for _, o := range own {
		replaced = append(replaced, o.key)
	}
	settings := cniconf.Object{}.With("logLevel", cniconf.Quote("verbose"))
	for _, key := range f.node.Keys() {
		if !slices.ContainsFunc(replaced, func(k string) bool { return strings.EqualFold(k, key) }) {
			value, _ := f.node.Get(key)
			settings = settings.With(key, value)
		}
	}
	for _, o := range own {
		settings = settings.With(o.key, cniconf.Quote(o.value))
	}
	return settings
}

func indented(text []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return text // it was made by cniconf, which writes JSON
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// Logs are the log files of a node, as its processes see them.
func Logs() []string {
	l := layout{workDir}
	return []string{l.daemonLog(), l.pluginLog()}
}
