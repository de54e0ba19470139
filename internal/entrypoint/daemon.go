package entrypoint

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// AddTo defines the flags in the node daemon's set too, which takes one dash or two.
func (f *Flags) AddTo(set *flag.FlagSet) {
	f.set.VisitAll(func(p *pflag.Flag) {
		usage := fmt.Sprintf("of thin_entrypoint: the key %q, if the file does not set it", places[p.Name].key)
		if why := places[p.Name].why; why != "" {
			usage = "of thin_entrypoint: without effect, " + why
		}
		take := func(value string) error { return f.set.Set(p.Name, value) }
		if p.Value.Type() == "bool" {
			set.BoolFunc(p.Name, usage, take)
		} else {
			set.Func(p.Name, usage, take)
		}
	})
}

// Given is a flag that was given, and what becomes of it in a thick installation.
type Given struct {
	Flag, Value string
	Key         string          // of the configuration; "" for none
	JSON        json.RawMessage // the key's value
	Why         string          // there is no key
}

// Given are the flags that were given, by name.
func (f *Flags) Given() []Given {
	var all []Given
	f.set.Visit(func(p *pflag.Flag) {
		to := places[p.Name]
		all = append(all, Given{Flag: p.Name, Value: p.Value.String(), Key: to.key, JSON: jsonValue(p), Why: to.why})
	})
	return all
}

// Under is the daemon's configuration file with the flags that were given under it: a
// key of the file goes before its flag. Notes tell what became of each flag. The
// file stays as it is where no flag adds to it.
func (f *Flags) Under(file []byte) (merged []byte, notes []config.Warning, err error) {
	object, err := cniconf.ParseObject(file)
	if err != nil {
		return nil, nil, err
	}
	var given cniconf.Object
	note := func(format string, args ...any) {
		notes = append(notes, config.Warning(fmt.Sprintf(format, args...)))
	}
	for _, flag := range f.Given() {
		switch {
		case flag.Key == "":
			note("flag --%s has no effect: %s", flag.Flag, flag.Why)
		case sets(object, flag.Key):
			note("flag --%s has no effect: the file sets the key %q", flag.Flag, flag.Key)
		default:
			note("flag --%s is taken as the key %q: put it into the file", flag.Flag, flag.Key)
			given = given.With(flag.Key, flag.JSON)
		}
	}
	if len(given.Keys()) == 0 {
		return file, notes, nil
	}
	merged, err = config.Overlay(given.Bytes(), file)
	return merged, notes, err
}

// sets tells whether a configuration gives a key a value; keys count in any case of
// letters.
func sets(o cniconf.Object, key string) bool {
	return slices.ContainsFunc(o.Keys(), func(name string) bool {
		raw, _ := o.Get(name)
		return strings.EqualFold(name, key) && string(raw) != "null"
	})
}
