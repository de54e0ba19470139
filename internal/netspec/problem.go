package netspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// String is one line that names place and cause and says what would be right. The
// caller puts the pod before it.
func (p Problem) String() string {
	var place []string
	if p.Element > 0 {
		place = append(place, fmt.Sprintf("network selection element %d", p.Element))
	}
	if p.Network != "" {
		place = append(place, "network "+p.Network)
	}
	if p.Key != "" {
		kind := "key"
		if strings.Contains(p.Key, "/") {
			kind = "annotation"
		}
		place = append(place, fmt.Sprintf("%s %q", kind, p.Key))
	}
	line := p.Wrong
	if len(place) > 0 {
		line = strings.Join(place, ", ") + ": " + line
	}
	if p.Right != "" {
		line += "; right would be " + p.Right
	}
	return line
}

// longestFound is how much of a user's text a message repeats, in characters.
const longestFound = 60

// Found names a JSON value in a message: `the text "9091"`, "the number 5", "a list".
// It is one line and short, whatever the value is.
func Found(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "a broken text"
		}
		return "the text " + strconv.Quote(Shorten(s))
	case 't', 'f', 'n':
		return Shorten(string(raw))
	}
	return "the number " + Shorten(string(raw))
}

// Shorten cuts a user's text that a message repeats.
func Shorten(s string) string {
	if runes := []rune(s); len(runes) > longestFound {
		return string(runes[:longestFound]) + "…"
	}
	return s
}
