package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"
)

// Config is a CNI network configuration: a single plugin (a "conf", the form
// before CNI 0.3) or a list of plugins (a "conflist"). Immutable; edits return a
// changed copy. The zero value is not valid, get one from Parse.
type Config struct {
	top     Object
	plugins []Plugin
	list    bool
	known   header
}

// header is what the engine itself needs to know of a configuration's top level.
type header struct {
	CNIVersion             string
	Name                   string
	DisableCheck           bool
	DisableGC              bool
	LoadOnlyInlinedPlugins bool
}

// Plugin is one plugin object of a configuration.
type Plugin struct {
	obj          Object
	Type         string          // executable name
	Capabilities map[string]bool // what the plugin declares it understands
}

// Parse reads a conf or a conflist that is complete in itself. It requires what every consumer needs: one
// JSON object, a plugin type for each plugin, and well-typed standard keys.
// A name may be missing (the caller injects one). Errors read as a predicate
// ("is not valid JSON …"), so that the caller can put the place before them.
func Parse(raw []byte) (Config, error) {
	c, err := parseTop(raw)
	if err != nil {
		return Config{}, err
	}
	if _, isList := c.top.Get("plugins"); !isList {
		p, err := parsePlugin(c.top)
		if err != nil {
			return Config{}, err
		}
		c.plugins = []Plugin{p}
		return c, nil
	}
	return c.parseList()
}

// ParseWithFolder reads a conflist whose plugins are followed by those of the
// folder named like the network beside its file; more are the contents of that
// folder's files, in order (CNI specification 1.1, loadOnlyInlinedPlugins). Only
// for files of the node: the list may then have no plugins of its own.
func ParseWithFolder(raw []byte, more []Plugin) (Config, error) {
	c, err := parseTop(raw)
	if err != nil {
		return Config{}, err
	}
	_, isList := c.top.Get("plugins")
	_, isConf := c.top.find("type")
	if isConf && !isList || len(more) == 0 || c.known.LoadOnlyInlinedPlugins {
		return Parse(raw)
	}
	if c, err = c.parseList(); err != nil {
		return Config{}, err
	}
	return c.setPlugins(append(c.plugins, more...)), nil
}

func parseTop(raw []byte) (Config, error) {
	top, err := ParseObject(raw)
	if err != nil {
		return Config{}, err
	}
	known, err := parseHeader(top)
	return Config{top: top, known: known}, err
}

func (c Config) parseList() (Config, error) {
	c.list = true
	var objects []Object
	if raw, ok := c.top.Get("plugins"); ok {
		if err := json.Unmarshal(raw, &objects); err != nil {
			return Config{}, fmt.Errorf("has a key \"plugins\" that is not a list of objects: %w", err)
		}
		if len(objects) == 0 {
			return Config{}, errors.New("has an empty list of plugins")
		}
	}
	for i, obj := range objects {
		p, err := parsePlugin(obj)
		if err != nil {
			return Config{}, fmt.Errorf("plugin %d %w", i+1, err)
		}
		c.plugins = append(c.plugins, p)
	}
	return c, nil
}

// parseHeader finds in any case what a conf may have in any case for v4.
func parseHeader(top Object) (header, error) {
	var h header
	var versions []string
	for _, k := range []struct {
		find func(string) (json.RawMessage, bool)
		key  string
		into any
	}{
		{top.find, "cniVersion", &h.CNIVersion},
		{top.Get, "cniVersions", &versions},
		{top.find, "name", &h.Name},
		{top.Get, "disableCheck", (*flexBool)(&h.DisableCheck)},
		{top.Get, "disableGC", (*flexBool)(&h.DisableGC)},
		{top.Get, "loadOnlyInlinedPlugins", (*flexBool)(&h.LoadOnlyInlinedPlugins)},
	} {
		if raw, ok := k.find(k.key); ok {
			if err := json.Unmarshal(raw, k.into); err != nil {
				return h, fmt.Errorf("has a key %q of the wrong type: %w", k.key, err)
			}
		}
	}
	var err error
	h.CNIVersion, err = newest(h.CNIVersion, versions)
	return h, err
}

// newest chooses among the versions that a configuration offers the newest that
// libcni knows, as container runtimes do (CNI specification 1.1, cniVersions).
func newest(single string, offered []string) (string, error) {
	if len(offered) == 0 {
		return single, nil
	}
	var known []string
	for _, v := range append(offered, single) {
		tooNew, err := version.GreaterThan(v, version.Current())
		if err != nil {
			return "", fmt.Errorf("has a key \"cniVersions\" or \"cniVersion\" with a bad version %q: %w", v, err)
		}
		if !tooNew {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return single, nil
	}
	return slices.MaxFunc(known, func(a, b string) int {
		if later, _ := version.GreaterThan(a, b); later { // both were parsed above
			return 1
		}
		return -1
	}), nil
}

// flexBool accepts true, "true" and "True": libcni reads such keys in all spellings.
type flexBool bool

func (b *flexBool) UnmarshalJSON(raw []byte) error {
	switch strings.ToLower(string(raw)) {
	case "true", `"true"`:
		*b = true
	case "false", `"false"`, "null":
		*b = false
	default:
		return errors.New("want true or false")
	}
	return nil
}

func parsePlugin(obj Object) (Plugin, error) {
	p := Plugin{obj: obj}
	raw, ok := obj.find("type")
	if !ok {
		return p, errors.New("has no key \"type\"")
	}
	if err := json.Unmarshal(raw, &p.Type); err != nil || p.Type == "" {
		return p, errors.New("has a key \"type\" that is not the name of a plugin")
	}
	if raw, ok := obj.find("capabilities"); ok {
		if err := json.Unmarshal(raw, &p.Capabilities); err != nil {
			return p, fmt.Errorf("has a key \"capabilities\" of the wrong type: %w", err)
		}
	}
	return p, nil
}

// Name is the network's name; empty where the configuration gives none.
func (c Config) Name() string { return c.known.Name }

// CNIVersion is the version the configuration asks for, the newest known one where
// it offers several, "0.1.0" where it is silent (CNI specification, section 1).
func (c Config) CNIVersion() string {
	if c.known.CNIVersion == "" {
		return "0.1.0"
	}
	return c.known.CNIVersion
}

// IsList tells a conflist from a conf.
func (c Config) IsList() bool { return c.list }

// Plugins are the plugins in the order of ADD. Never empty.
func (c Config) Plugins() []Plugin { return c.plugins }

// DisableCheck says that the network does not take part in CHECK.
func (c Config) DisableCheck() bool { return c.known.DisableCheck }

// DisableGC says that the network does not take part in GC.
func (c Config) DisableGC() bool { return c.known.DisableGC }

// Bytes is the whole configuration as compact JSON.
func (c Config) Bytes() []byte { return c.top.Bytes() }

// MarshalJSON puts the configuration itself, not a description of it, into other JSON values.
func (c Config) MarshalJSON() ([]byte, error) { return c.Bytes(), nil }

// UnmarshalJSON is Parse for configurations inside other JSON values.
func (c *Config) UnmarshalJSON(raw []byte) error {
	parsed, err := Parse(raw)
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}

// WithName returns the configuration under another network name.
func (c Config) WithName(name string) Config { return c.withTop("name", name) }

// WithCNIVersion returns the configuration asking for another CNI version, and
// offering no others.
func (c Config) WithCNIVersion(version string) Config {
	c.top = c.top.Without("cniVersions")
	return c.withTop("cniVersion", version)
}

func (c Config) withTop(key, value string) Config {
	c.top = c.top.With(key, Quote(value))
	c.known, _ = parseHeader(c.top) // only a string was replaced by a string
	if !c.list {
		c.plugins = []Plugin{{obj: c.top, Type: c.plugins[0].Type, Capabilities: c.plugins[0].Capabilities}}
	}
	return c
}

// MapPlugins returns the configuration with each plugin object put through edit.
func (c Config) MapPlugins(edit func(Object) Object) Config {
	all := make([]Plugin, len(c.plugins))
	for i, p := range c.plugins {
		p.obj = edit(p.obj)
		all[i] = p
	}
	if !c.list {
		c.top, c.plugins = all[0].obj, all
		return c
	}
	return c.setPlugins(all)
}

func (c Config) setPlugins(all []Plugin) Config {
	objects := make([]Object, len(all))
	for i, p := range all {
		objects[i] = p.obj
	}
	c.top = c.top.With("plugins", Quote(objects))
	c.plugins = all
	return c
}

// Depth is how deep objects and lists are nested in the configuration.
func (c Config) Depth() (most int) {
	depth, text := 0, false
	raw := c.Bytes()
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case text && b == '\\':
			i++
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			depth++
			most = max(most, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return most
}

// Declares reports whether some plugin declares the capability.
func (c Config) Declares(capability string) bool {
	for _, p := range c.plugins {
		if p.Capabilities[capability] {
			return true
		}
	}
	return false
}

// Types are the texts under keys "type", in any case of letters and at any depth: the
// plugins that the configuration names, those of IPAM and those that plugins run
// themselves included. A key that comes twice in an object counts with each of its values.
func (c Config) Types() []string {
	var found []string
	dec := json.NewDecoder(bytes.NewReader(c.Bytes()))
	dec.UseNumber() // as a float64, a number as large as 1e400 would end the search
	collectTypes(dec, false, &found)
	return found
}

// collectTypes reads one value; named tells whether its key is "type". The text is known
// to be JSON, so that no token is an error before the value ends.
func collectTypes(dec *json.Decoder, named bool, found *[]string) {
	tok, _ := dec.Token()
	switch tok {
	case json.Delim('{'):
		for dec.More() {
			key, _ := dec.Token()
			name, _ := key.(string)
			collectTypes(dec, strings.EqualFold(name, "type"), found)
		}
		_, _ = dec.Token()
	case json.Delim('['):
		for dec.More() {
			collectTypes(dec, false, found)
		}
		_, _ = dec.Token()
	default:
		if text, ok := tok.(string); ok && named {
			*found = append(*found, text)
		}
	}
}

// HasType reports whether a plugin of one of the given types occurs at any depth.
func (c Config) HasType(types ...string) bool {
	return slices.ContainsFunc(c.Types(), func(t string) bool { return slices.Contains(types, t) })
}

// Object is the plugin's own configuration object.
func (p Plugin) Object() Object { return p.obj }

// ParsePlugin reads one plugin object, as the files of a plugin folder hold it.
func ParsePlugin(raw []byte) (Plugin, error) {
	obj, err := ParseObject(raw)
	if err != nil {
		return Plugin{}, err
	}
	return parsePlugin(obj)
}

// Stdin derives the execution configuration of one plugin (CNI specification,
// section 3): the plugin object with the network's name and version, the
// capability arguments that it declares as runtimeConfig, and prevResult and
// other keys of the operation where the caller gives them. The key "capabilities"
// stays, against the specification: libcni leaves it, and plugins have come to see it.
func (c Config) Stdin(p Plugin, capabilityArgs map[string]json.RawMessage, extra map[string]json.RawMessage) []byte {
	obj := p.obj.With("cniVersion", Quote(c.CNIVersion())).With("name", Quote(c.Name()))
	declared := map[string]json.RawMessage{}
	for name, value := range capabilityArgs {
		if p.Capabilities[name] {
			declared[name] = value
		}
	}
	if len(declared) > 0 {
		obj = obj.With("runtimeConfig", Quote(declared))
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		obj = obj.With(key, extra[key])
	}
	return obj.Bytes()
}
