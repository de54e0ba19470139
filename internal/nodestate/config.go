package nodestate

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/confgen"
	"github.com/multus-thick/multus/internal/config"
)

// Config is what the runtime is configured to do.
type Config struct {
	// Error says why the folder cannot be read.
	Error string `json:"error,omitempty"`
	// Taken is the file that the runtime takes; empty for none.
	Taken string `json:"taken,omitempty"`
	// Generated is Multus's own file, and Plugin the plugin that it runs, "multus-shim" or
	// "multus"; empty where there is none.
	Generated string `json:"generated,omitempty"`
	Plugin    string `json:"plugin,omitempty"`
	// NotOurs is a file with the name of Multus's own that is not Multus's.
	NotOurs string  `json:"notOurs,omitempty"`
	Primary Primary `json:"primary"`

	files   []confgen.File
	content []byte         // of Generated
	parsed  *config.Config // of Generated; nil where it cannot be read
}

// Primary is the primary network.
type Primary struct {
	// File is its configuration file as the host sees it; empty where the generated
	// configuration holds the network itself.
	File    string `json:"file,omitempty"`
	Network string `json:"network,omitempty"`
	Why     string `json:"why,omitempty"`
	// Error says why its configuration cannot be used.
	Error string `json:"error,omitempty"`

	conf *cniconf.Config
}

// String is the network, its file and why it is that one, or what is wrong.
func (p Primary) String() string {
	name := cmp.Or(p.Network, p.File)
	if p.Network != "" && p.File != "" {
		name += " (" + p.File + ")"
	}
	return strings.TrimPrefix(name+": "+cmp.Or(p.Error, p.Why), ": ")
}

// ReadConfig looks into the runtime's folder.
func ReadConfig(p Paths) Config {
	var c Config
	files, err := confgen.ReadFolder(p.ConfDir)
	if err != nil {
		c.Error = err.Error()
		c.Primary.Error = "unknown"
		return c
	}
	c.files = files
	c.Taken, _ = confgen.Taken(files)
	for _, f := range files {
		plugin := confgen.OwnPlugin(f)
		switch {
		case !confgen.OwnFile(f) || c.Generated != "": // the first is the one that counts
		case plugin == "":
			c.NotOurs = f.Name
		default:
			c.Generated, c.Plugin, c.content = f.Name, plugin, f.Content
		}
	}
	if c.Generated == "" {
		c.Primary = foreseen(p.ConfDir, files)
		return c
	}
	c.parsed = parseGenerated(c.content)
	c.Primary = c.primary(p)
	return c
}

// foreseen is the primary network that an installation would choose.
func foreseen(dir string, files []confgen.File) Primary {
	choice, skipped := confgen.Choose(files, &config.Config{MultusAutoconfigDir: dir})
	if choice.Name == "" {
		why := []string{"no valid network configuration in " + dir}
		for _, s := range skipped {
			why = append(why, s.Name+" "+s.Reason)
		}
		return Primary{Error: strings.Join(why, "; ")}
	}
	return Primary{File: filepath.Join(dir, choice.Name), Network: choice.Config.Name(), Why: choice.Why, conf: &choice.Config}
}

// parseGenerated reads a generated configuration as the plugin does; nil where it cannot.
func parseGenerated(content []byte) *config.Config {
	c, err := cniconf.Parse(content)
	if err != nil {
		return nil
	}
	parsed, _, err := config.Parse(c.Stdin(c.Plugins()[0], nil, nil))
	if err != nil {
		return nil
	}
	return parsed
}

// primary finds the primary network by what the generated configuration says of it.
func (c Config) primary(p Paths) Primary {
	cfg := c.parsed
	switch {
	case cfg == nil:
		return Primary{Error: c.Generated + " cannot be read"}
	case cfg.Host != nil && cfg.Host.PrimaryFile != "":
		return readPrimary(p, cfg.Host.PrimaryFile)
	case strings.Contains(cfg.ClusterNetwork, "/") && (cfg.Host == nil || len(cfg.Host.Snapshot) == 0):
		return readPrimary(p, cfg.ClusterNetwork)
	case cfg.Host != nil && len(cfg.Host.Snapshot) > 0:
		return inline(cfg.Host.Snapshot)
	case len(cfg.Delegates) > 0:
		return inline(cfg.Delegates[0])
	}
	return Primary{Network: cfg.ClusterNetwork, Why: "the clusterNetwork, which is planned at each ADD"}
}

func inline(raw json.RawMessage) Primary {
	conf, err := cniconf.Parse(raw)
	if err != nil {
		return Primary{Error: "the generated configuration holds one that " + err.Error()}
	}
	return Primary{Network: conf.Name(), Why: "the generated configuration holds it", conf: &conf}
}

// readPrimary reads the file where the host has it, or else the runtime's folder: a
// container may have that alone, and the daemon's path is not always the host's.
func readPrimary(p Paths, file string) Primary {
	primary := Primary{File: file}
	for _, dir := range []string{filepath.Join(p.Root, filepath.Dir(file)), p.ConfDir} {
		files, err := confgen.ReadFolder(dir)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(files, func(f confgen.File) bool { return f.Name == filepath.Base(file) })
		if i < 0 {
			continue
		}
		choice, skipped := confgen.Choose(files[i:i+1], &config.Config{})
		if choice.Name == "" {
			primary.Error = "no file of a primary network is called so"
			for _, s := range skipped {
				primary.Error = s.Reason
			}
			return primary
		}
		primary.Network, primary.Why, primary.conf = choice.Config.Name(), "the generated configuration names it", &choice.Config
		return primary
	}
	primary.Error = "there is no such file"
	return primary
}
