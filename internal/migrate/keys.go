package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/entrypoint"
)

// usualConfig is the daemon's file where no -config names one.
const usualConfig = "/etc/cni/net.d/multus.d/daemon-config.json"

// view says how a layer of keys names files.
type view func(path string) string

// setting is a key with what it takes to carry it.
type setting struct {
	Key
	host view
}

// settings are the keys that are in effect.
type settings struct {
	all     []setting
	binDir  string // --cni-bin-dir, which has no key
	fixed   bool   // they are those of a file that multusConfigFile names
	remarks remarks
}

type remarks struct{ changes, lost []Remark }

func (r *remarks) change(what, why, do string) { r.changes = append(r.changes, Remark{what, why, do}) }
func (r *remarks) lose(what, why, do string)   { r.lost = append(r.lost, Remark{what, why, do}) }

// put sets a key over what a layer before has set.
func (s *settings) put(key string, value json.RawMessage, from string, host view) {
	s.all = slices.DeleteFunc(s.all, func(old setting) bool { return strings.EqualFold(old.Key.Key, key) })
	if string(value) != "null" {
		s.all = append(s.all, setting{Key{canonical(key), value, from}, host})
	}
}

func (s *settings) object(text []byte, from string, host view) error {
	o, err := cniconf.ParseObject(text)
	if err != nil {
		return fmt.Errorf("%s %w", from, err)
	}
	for _, key := range o.Keys() {
		value, _ := o.Get(key)
		s.put(key, value, from, host)
	}
	return nil
}

// text is a key's value where it is a text.
func (s *settings) text(key string) string {
	var v string
	for _, k := range s.all {
		if k.Key.Key == key && json.Unmarshal(k.Value, &v) != nil {
			return ""
		}
	}
	return v
}

// canonical is a key in the spelling of the table of keys.
func canonical(key string) string {
	for _, k := range config.Keys() {
		if strings.EqualFold(k.Name, key) {
			return k.Name
		}
	}
	return key
}

// flags reads the arguments as the entrypoint does. It goes on after those that are none of
// its flags.
func (s *settings) flags(args []string, kind Kind, host view) {
	given := s.parse(args)
	for _, f := range given {
		from := "--" + f.Flag
		if f.Flag == "cni-bin-dir" {
			s.binDir = path.Clean(f.Value)
		}
		if f.Key == "" {
			if kind == Thin {
				s.remarks.change(fmt.Sprintf("flag %s goes", from), f.Why, "")
			}
			continue
		}
		in := host
		if kind == Thin && slices.Contains([]string{"multus-log-file", "readiness-indicator-file", "additional-bin-dir"}, f.Flag) {
			in = path.Clean // the plugin reads them, and it is on the host
		}
		s.put(f.Key, f.JSON, from, in)
	}
}

func (s *settings) parse(args []string) []entrypoint.Given {
	args = slices.Clone(args)
	for {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SetOutput(io.Discard)
		flags := entrypoint.NewFlags(set)
		err := set.Parse(args)
		name := unparsed(err)
		at := slices.IndexFunc(args, func(a string) bool {
			bare, _, _ := strings.Cut(a, "=")
			return name != "" && strings.TrimLeft(bare, "-") == name
		})
		if err == nil || at < 0 {
			return flags.Given()
		}
		s.remarks.lose("argument "+args[at], err.Error(), "look whether you need it; docs/configure.md lists the flags")
		args = slices.Delete(args, at, at+1)
	}
}

// unparsed is the name of the flag that an error is about.
func unparsed(err error) string {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var alone *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		return unknown.GetSpecifiedName()
	case errors.As(err, &invalid):
		return invalid.GetFlag().Name
	case errors.As(err, &alone):
		return alone.GetSpecifiedName()
	}
	return ""
}

// daemonArgs takes the daemon's own flags out of its arguments, and gives the others two
// dashes.
func daemonArgs(args []string) (file string, rest []string) {
	file = usualConfig
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case name == "config" && joined:
			file = value
		case name == "config" && i+1 < len(args):
			i++
			file = args[i]
		case strings.HasPrefix(args[i], "-"):
			rest = append(rest, "--"+strings.TrimLeft(args[i], "-"))
		default:
			rest = append(rest, args[i])
		}
	}
	return file, rest
}

// podFile is what a ConfigMap puts at a path of a container; why says that it is not to be
// had.
func (o *Objects) podFile(namespace string, pod corev1.PodSpec, c corev1.Container, file string) (text, from, why string) {
	for _, m := range c.VolumeMounts {
		rest, ok := below(file, path.Clean(m.MountPath))
		for _, v := range pod.Volumes {
			if !ok || v.Name != m.Name || v.ConfigMap == nil {
				continue
			}
			name := path.Join(m.SubPath, rest)
			return o.mapped(namespace, v.ConfigMap, strings.TrimPrefix(name, "/"))
		}
	}
	return "", "", file + " comes from no ConfigMap of the DaemonSet"
}

func (o *Objects) mapped(namespace string, v *corev1.ConfigMapVolumeSource, name string) (text, from, why string) {
	key := name
	for _, item := range v.Items {
		if item.Path == name {
			key = item.Key
		}
	}
	title := "ConfigMap " + namespace + "/" + v.Name
	for _, m := range o.maps {
		if m.Name != v.Name || m.Namespace != namespace {
			continue
		}
		if text, ok := m.Data[key]; ok {
			return text, name + " in " + title, ""
		}
		return "", "", title + " has no " + key
	}
	return "", "", title + " is not in what was given"
}

// read puts together the keys of a DaemonSet.
func (o *Objects) read(s daemonSet, c corev1.Container, kind Kind) (settings, error) {
	var all settings
	pod := s.Spec.Template.Spec
	seen := mounts(pod, c)
	host := func(file string) string { return onHost(seen, file) }
	args := arguments(c)
	if kind == Thick {
		var file string
		file, args = daemonArgs(args)
		text, from, why := o.podFile(s.Namespace, pod, c, file)
		all.flags(args, kind, host)
		if why != "" {
			all.remarks.lose("the daemon's file", why, "give it too: without it the keys are unknown")
		} else if err := all.object([]byte(text), from, host); err != nil {
			return all, err
		}
	} else {
		all.flags(args, kind, host)
	}
	if file := all.text("multusConfigFile"); file != "" && file != config.AutoConfigFile {
		text, from, why := o.podFile(s.Namespace, pod, c, file)
		if why != "" {
			all.remarks.lose("multusConfigFile "+file, why, "give the file's ConfigMap too; else look for keys in it that you need")
			return all, nil
		}
		return all, all.fixedFile(text, from)
	}
	return all, nil
}

// fixedFile puts the keys of a file that is copied to the node over the others: the plugin
// reads nothing else.
func (s *settings) fixedFile(text, from string) error {
	c, err := cniconf.Parse([]byte(text))
	if err != nil {
		return fmt.Errorf("%s %w", from, err)
	}
	s.fixed = true
	for _, p := range c.Plugins() {
		if p.Type == "multus" || p.Type == "multus-shim" {
			o := p.Object()
			if c.IsList() {
				o = o.With("name", cniconf.Quote(c.Name())).With("cniVersion", cniconf.Quote(c.CNIVersion()))
			}
			return s.object(o.Bytes(), from, path.Clean)
		}
	}
	s.remarks.lose(from, "it does not run Multus", "")
	return nil
}

// drop takes out what no daemon would take, with its reason.
func (s *settings) drop() {
	var o cniconf.Object
	for _, k := range s.all {
		o = o.With(k.Key.Key, k.Value)
	}
	out := func(key, why string) {
		top, _, _ := strings.Cut(key, ".")
		s.remarks.lose("key "+key, why, "")
		s.all = slices.DeleteFunc(s.all, func(k setting) bool { return k.Key.Key == top })
	}
	_, _, err := config.Parse(o.Bytes())
	for _, wrong := range keyErrors(err) {
		if wrong.Key == "cniVersion" && s.text("cniVersion") == "" {
			wrong.Key = "forceCNIVersion" // which needs it
		}
		out(wrong.Key, fmt.Sprintf("expected %s, found %s", wrong.Expected, wrong.Found))
	}
	known := config.Keys()
	for _, key := range o.Keys() {
		i := slices.IndexFunc(known, func(k config.Key) bool { return k.Name == key })
		switch {
		case i < 0:
			out(key, "Multus has no such key, and had none in v4")
		case known[i].Instead != "":
			out(key, "it never had an effect; "+known[i].Instead+" has")
		}
	}
}

// keyErrors are those that config.Parse joined.
func keyErrors(err error) []config.KeyError {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	var all []config.KeyError
	for _, e := range joined.Unwrap() {
		var wrong config.KeyError
		if errors.As(e, &wrong) {
			all = append(all, wrong)
		}
	}
	return all
}
