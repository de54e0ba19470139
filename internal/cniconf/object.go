package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Object is a JSON object whose members keep their order and their raw text.
// The zero value is an empty object. Methods that edit return a changed copy.
type Object struct {
	members []member
}

type member struct {
	key   string
	value json.RawMessage
}

// ParseObject reads exactly one JSON object. Of a key that occurs twice the last
// counts, as for Go's decoder and so for Multus v4.
func ParseObject(raw []byte) (Object, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil { // it tells places better than a Decoder does
		return Object{}, jsonError(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return Object{}, errors.New("is not a JSON object")
	}
	var o Object
	at := map[string]int{} // place of each key: an object of a user may be very wide
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return Object{}, jsonError(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Object{}, jsonError(err)
		}
		name := key.(string) // what else would not be JSON
		if i, twice := at[name]; twice {
			o.members[i].value = value
			continue
		}
		at[name] = len(o.members)
		o.members = append(o.members, member{name, value})
	}
	return o, nil
}

// jsonError puts a decoder's error in words without repeating the input.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("is not valid JSON at byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("is not valid JSON: %w", err)
}

// Get returns the raw text of a member and whether it is there.
func (o Object) Get(key string) (json.RawMessage, bool) {
	for _, m := range o.members {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

// find is Get as Go's decoder, and so Multus v4, finds a field: in any case where
// no key is spelled exactly so.
func (o Object) find(key string) (json.RawMessage, bool) {
	if raw, ok := o.Get(key); ok {
		return raw, true
	}
	for _, m := range o.members {
		if strings.EqualFold(m.key, key) {
			return m.value, true
		}
	}
	return nil, false
}

// Keys lists the member names in their order.
func (o Object) Keys() []string {
	keys := make([]string, len(o.members))
	for i, m := range o.members {
		keys[i] = m.key
	}
	return keys
}

// With returns a copy in which key has the given raw value: in its old place
// where it existed, at the end otherwise.
func (o Object) With(key string, value json.RawMessage) Object {
	members := slices.Clone(o.members)
	for i := range members {
		if members[i].key == key {
			members[i].value = value
			return Object{members}
		}
	}
	return Object{append(members, member{key, value})}
}

// Without returns a copy that lacks the given keys.
func (o Object) Without(keys ...string) Object {
	members := slices.DeleteFunc(slices.Clone(o.members), func(m member) bool { return slices.Contains(keys, m.key) })
	return Object{members}
}

// Bytes writes the object as compact JSON.
func (o Object) Bytes() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(Quote(m.key))
		b.WriteByte(':')
		if err := json.Compact(&b, m.value); err != nil {
			b.WriteString("null") // unreachable: values were decoded or marshalled as JSON
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

// MarshalJSON makes an Object usable inside other JSON values.
func (o Object) MarshalJSON() ([]byte, error) { return o.Bytes(), nil }

// UnmarshalJSON reads an Object inside other JSON values.
func (o *Object) UnmarshalJSON(raw []byte) error {
	parsed, err := ParseObject(raw)
	if err != nil {
		return err
	}
	*o = parsed
	return nil
}

// Marshal is json.Marshal that leaves "<", ">" and "&" as they are, also in raw
// values inside v.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Quote is the raw JSON text of a Go value that is known to marshal: strings,
// numbers, and slices and maps of them.
func Quote(v any) json.RawMessage {
	raw, err := Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cniconf: value of type %T does not marshal: %v", v, err))
	}
	return raw
}
