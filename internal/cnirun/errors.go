package cnirun

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
)

// failure is the error of one call of a plugin. It unwraps to the *types.Error
// with the code for the runtime and, where there is one, to the cause.
type failure struct {
	plugin, verb string
	err          *types.Error
	cause        error
	answered     bool // the plugin exited by itself, and printed a CNI error
}

func (f *failure) Error() string {
	return fmt.Sprintf("plugin %s (%s): %s", quoted(f.plugin), f.verb, oneLine(f.err.Error(), 2048))
}

// AnsweredBy is attach.Answer's.
func (f *failure) AnsweredBy() string {
	if !f.answered {
		return ""
	}
	return f.plugin
}

func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.err}
	}
	return []error{f.err, f.cause}
}

// pluginError reads the error that a plugin printed (CNI specification, section
// 5). Where there is none, how it ended and its last words on stderr are the message.
func pluginError(stdout []byte, ended error, lastWords string) *types.Error {
	if e := printed(stdout); e != nil {
		return e
	}
	return types.NewError(types.ErrInternal, fmt.Sprintf("failed without a CNI error (%v)", ended), lastWords)
}

// printed is the error that a plugin printed; nil where it printed none.
func printed(stdout []byte) *types.Error {
	var e types.Error
	if json.Unmarshal(stdout, &e) != nil || e.Msg == "" {
		return nil
	}
	return &e
}

// quoted is a name from a configuration, as much of it as fits into an error line.
func quoted(name string) string { return fmt.Sprintf("%q", oneLine(name, 64)) }

// oneLine makes text of unknown origin fit for an error line: white space and
// control characters become single spaces, and limit bytes are enough.
func oneLine(s string, limit int) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	s = strings.Join(words, " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
