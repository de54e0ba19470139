package config

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// kind is how a key is read: the words for what it expects, and a setter that tells
// whether the value was that.
type kind struct {
	Type string
	set  func(*Config, json.RawMessage) bool
}

// ignored is a key that is known and has no effect here.
func ignored() kind { return kind{Type: "anything"} }

// group is an object whose members are keys of their own.
func group() kind { return kind{Type: "an object"} }

// value reads a field by its Go type, and refuses what is not valid.
func value[T any](expects string, at func(*Config) *T, valid func(T) bool) kind {
	return kind{expects, func(c *Config, raw json.RawMessage) bool {
		var v T
		if json.Unmarshal(raw, &v) != nil || valid != nil && !valid(v) {
			return false
		}
		*at(c) = v
		return true
	}}
}

// textIf reads a text. An empty one leaves the default, as in v4.
func textIf(expects string, at func(*Config) *string, valid func(string) bool) kind {
	return kind{expects, func(c *Config, raw json.RawMessage) bool {
		var v string
		if json.Unmarshal(raw, &v) != nil || v != "" && !valid(v) {
			return false
		}
		if v != "" {
			*at(c) = v
		}
		return true
	}}
}

func text(at func(*Config) *string) kind {
	return textIf("a text", at, func(string) bool { return true })
}

func path(at func(*Config) *string) kind {
	return textIf("a path", at, func(string) bool { return true })
}

// choice is one of a few words, in any case of letters, kept as they are listed.
func choice(at func(*Config) *string, words ...string) kind {
	k := textIf(`one of "`+strings.Join(words, `", "`)+`"`, at, func(v string) bool {
		return slices.Contains(words, strings.ToLower(v))
	})
	read := k.set
	k.set = func(c *Config, raw json.RawMessage) bool {
		ok := read(c, raw)
		*at(c) = strings.ToLower(*at(c))
		return ok
	}
	return k
}

func flag(at func(*Config) *bool) kind { return value("true or false", at, nil) }

// number is a whole number from least to most.
func number(expects string, at func(*Config) *int, least, most int) kind {
	return value(expects, at, func(n int) bool { return n >= least && n <= most })
}

// duration is a Go duration as text, or a number of seconds; never zero.
func duration(at func(*Config) *time.Duration) kind {
	return kind{`a duration above zero such as "30s", or a number of seconds`, func(c *Config, raw json.RawMessage) bool {
		var d time.Duration
		var seconds float64
		var text string
		switch {
		case json.Unmarshal(raw, &seconds) == nil && seconds < math.MaxInt64/float64(time.Second):
			d = time.Duration(seconds * float64(time.Second))
		case json.Unmarshal(raw, &text) == nil:
			d, _ = time.ParseDuration(text) // zero on error
		}
		if d <= 0 {
			return false
		}
		*at(c) = d
		return true
	}}
}

// list reads a list whose entries are valid. An empty one leaves the default, as in v4.
func list[T any](expects string, at func(*Config) *[]T, valid func(T) bool) kind {
	return kind{expects, func(c *Config, raw json.RawMessage) bool {
		var v []T
		if json.Unmarshal(raw, &v) != nil || !all(v, valid) {
			return false
		}
		if len(v) > 0 {
			*at(c) = v
		}
		return true
	}}
}

func names(at func(*Config) *[]string) kind {
	return list("a list of names", at, func(v string) bool { return v != "" })
}

// someNames reads a list that is a bound: an empty one would be taken for "none" by its
// author, and for "all" by whoever reads the zero value.
func someNames(at func(*Config) *[]string) kind {
	return value("a list of names that is not empty", at, func(v []string) bool {
		return len(v) > 0 && !slices.Contains(v, "")
	})
}

// commaNames reads a comma list in a text, or a list.
func commaNames(at func(*Config) *[]string) kind {
	asList := names(at)
	return kind{"names in a text, with commas between, or a list of names", func(c *Config, raw json.RawMessage) bool {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			return asList.set(c, raw)
		}
		var found []string
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			*at(c) = found
		}
		return true
	}}
}

// isObject tells the raw text of a JSON object.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// isEnvName tells a name that an environment can hold.
func isEnvName(v string) bool { return v != "" && !strings.ContainsAny(v, "=\x00") }

// isFileName tells a file name without a folder (T5: nothing outside the folder).
func isFileName(v string) bool { return v != "." && v != ".." && !strings.ContainsAny(v, "/\x00") }

func all[T any](list []T, valid func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !valid(v) })
}
