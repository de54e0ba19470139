package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
)

// AutoConfigFile is the value of multusConfigFile that generates the configuration.
const AutoConfigFile = "auto"

// KeyError is one key with a value that cannot be taken. It reads as one line.
type KeyError struct {
	Key      string
	Expected string
	Found    string
}

func (e KeyError) Error() string {
	return fmt.Sprintf("key %q: expected %s, found %s", e.Key, e.Expected, e.Found)
}

// Warning is one line about what does not stop the program.
type Warning string

// Parse reads one JSON object: the daemon's file, or a plugin's standard input. It
// fills the defaults. The error joins one KeyError for each key that is wrong; the
// warnings are sorted, and given beside an error too. A key is taken in its exact
// spelling, else in any case of letters, as v4 took it; null is absent.
func Parse(raw []byte) (*Config, []Warning, error) {
	top, err := cniconf.ParseObject(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration %w", err)
	}
	d := decoder{keys: Keys(), config: new(Config), wrong: map[string]bool{}}
	for _, k := range d.keys {
		if k.Default != "" {
			k.set(d.config, json.RawMessage(k.Default))
		}
	}
	d.object("", top)
	d.combinations()
	slices.Sort(d.warnings)
	if len(d.errs) > 0 {
		return nil, d.warnings, errors.Join(d.errs...)
	}
	return d.config, d.warnings, nil
}

var logLevels = []string{"panic", "error", "verbose", "debug"}

type decoder struct {
	keys     []Key
	config   *Config
	warnings []Warning
	errs     []error
	wrong    map[string]bool // keys that have an error
}

func (d *decoder) fail(key, expected, found string) {
	d.errs = append(d.errs, KeyError{key, expected, found})
	d.wrong[key] = true
}

func (d *decoder) warn(format string, args ...any) {
	d.warnings = append(d.warnings, Warning(fmt.Sprintf(format, args...)))
}

// object decodes the members of the object that a group key holds, "" for the whole.
func (d *decoder) object(group string, o cniconf.Object) {
	given := d.match(group, withoutNulls(o))
	for _, k := range d.keys {
		if raw, ok := given[k.Name]; ok {
			d.apply(k, raw)
		}
	}
}

// match finds the raw value of each key of a group, exact spellings first, and warns
// of members that are no key.
func (d *decoder) match(group string, o cniconf.Object) map[string]json.RawMessage {
	prefix := ""
	if group != "" {
		prefix = group + "."
	}
	given := map[string]json.RawMessage{}
	take := func(member string, same func(a, b string) bool) (taken bool) {
		i := slices.IndexFunc(d.keys, func(k Key) bool { return k.group == group && same(k.Name, prefix+member) })
		if i < 0 {
			return false
		}
		if _, twice := given[d.keys[i].Name]; twice {
			return false
		}
		given[d.keys[i].Name], _ = o.Get(member)
		return true
	}
	var inexact []string
	for _, member := range o.Keys() {
		if !take(member, func(a, b string) bool { return a == b }) {
			inexact = append(inexact, member)
		}
	}
	for _, member := range inexact {
		if !take(member, strings.EqualFold) {
			d.warn("unknown key %q is ignored%s", prefix+member, d.suggest(group, prefix+member))
		}
	}
	return given
}

func (d *decoder) apply(k Key, raw json.RawMessage) {
	switch {
	case k.Instead != "":
		d.warn("key %q has no effect, %q has", k.Name, k.Instead)
	case k.set != nil:
		if !k.set(d.config, raw) {
			d.fail(k.Name, k.Type, netspec.Found(raw))
		}
	case slices.ContainsFunc(d.keys, func(member Key) bool { return member.group == k.Name }):
		o, err := cniconf.ParseObject(raw)
		if err != nil {
			found := netspec.Found(raw)
			if isObject(raw) {
				found = fmt.Sprintf("one that %v", err)
			}
			d.fail(k.Name, k.Type, found)
			return
		}
		d.object(k.Name, o)
	}
}

// combinations holds keys against each other. Keys that are wrong already are left out.
func (d *decoder) combinations() {
	c := d.config
	needs := func(key, needed, value string) {
		if value == "" && !d.wrong[needed] {
			d.fail(needed, fmt.Sprintf("a value, because %q is true", key), "none")
		}
	}
	if c.PerNodeCertificate.Enabled {
		needs("perNodeCertificate.enabled", "perNodeCertificate.bootstrapKubeconfig", c.PerNodeCertificate.BootstrapKubeconfig)
		needs("perNodeCertificate.enabled", "perNodeCertificate.certDir", c.PerNodeCertificate.CertDir)
	}
	if c.ForceCNIVersion {
		needs("forceCNIVersion", "cniVersion", c.CNIVersion)
	}
	if c.ClusterNetwork != "" && c.Delegates != nil {
		c.Delegates = nil
		d.warn("key %q has no effect beside %q", "delegates", "clusterNetwork")
	}
	if c.MultusMasterCNI != "" && c.MultusConfigFile != AutoConfigFile {
		d.warn("key %q has no effect where %q is not %q", "multusMasterCNI", "multusConfigFile", AutoConfigFile)
	}
	// A level that v4 does not know never stopped a pod: it is the default.
	c.LogLevel = strings.ToLower(c.LogLevel)
	if c.LogLevel != "" && !slices.Contains(logLevels, c.LogLevel) {
		d.warn("key %q: there is no level %q, want one of %s", "logLevel", c.LogLevel, strings.Join(logLevels, ", "))
		c.LogLevel = ""
	}
	if c.EnablePprof && c.MetricsPort == 0 && !d.wrong["metricsPort"] {
		d.warn("key %q has no effect without %q", "enablePprof", "metricsPort")
	}
}

// suggest names the key of a group that a misspelt one is nearest to, within two edits
// (one edit in a short key).
func (d *decoder) suggest(group, name string) string {
	best, distance := "", min(2, len(name)/3)+1
	for _, k := range d.keys {
		if n := edits(strings.ToLower(k.Name), strings.ToLower(name)); k.group == group && n < distance {
			best, distance = k.Name, n
		}
	}
	switch {
	case best == "":
		return ""
	case distance == 0:
		return fmt.Sprintf(", another spelling of %q is given too", best)
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// edits is the number of insertions, deletions and replacements of bytes between two texts.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Overlay puts every top-level key of the daemon's file over a plugin's standard
// input (contract 1.3). Keys meet in any case of letters; a null in the file is no
// key; nothing else of either is changed.
func Overlay(stdin, daemonFile []byte) ([]byte, error) {
	base, err := cniconf.ParseObject(stdin)
	if err != nil {
		return nil, fmt.Errorf("the runtime's configuration %w", err)
	}
	over, err := cniconf.ParseObject(daemonFile)
	if err != nil {
		return nil, fmt.Errorf("the daemon's configuration %w", err)
	}
	over = withoutNulls(over)
	result := base
	for _, key := range base.Keys() {
		inFile := func(other string) bool { return strings.EqualFold(key, other) }
		if slices.ContainsFunc(over.Keys(), inFile) && !slices.Contains(over.Keys(), key) {
			result = result.Without(key)
		}
	}
	for _, key := range over.Keys() {
		value, _ := over.Get(key)
		result = result.With(key, value)
	}
	return result.Bytes(), nil
}

// withoutNulls drops the members that are null: for us they are absent (charts write
// "clusterNetwork": null).
func withoutNulls(o cniconf.Object) cniconf.Object {
	for _, key := range o.Keys() {
		if raw, _ := o.Get(key); string(raw) == "null" {
			o = o.Without(key)
		}
	}
	return o
}
