package cniconf

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func object(t *testing.T, text string) Object {
	t.Helper()
	o, err := ParseObject([]byte(text))
	if err != nil {
		t.Fatalf("%s %v", text, err)
	}
	return o
}

func TestT13ObjectKeepsWhatItHolds(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":             {` { } `, `{}`},
		"order":             {`{"z":1,"a":2,"m":3}`, `{"z":1,"a":2,"m":3}`},
		"large numbers":     {`{"n":9007199254740993,"m":-0.10e+400}`, `{"n":9007199254740993,"m":-0.10e+400}`},
		"html":              {`{"<&>":"a<b>&c"}`, `{"<&>":"a<b>&c"}`},
		"escapes stay":      {`{"a":"\u003cb\u003e \/ \n"}`, `{"a":"\u003cb\u003e \/ \n"}`},
		"unicode":           {`{"ключ":"значение 🛰","e":"\ud83d\udef0"}`, `{"ключ":"значение 🛰","e":"\ud83d\udef0"}`},
		"nested":            {"{\"a\": {\"b\" : [ 1 , {\"c\":\tnull } ] } }", `{"a":{"b":[1,{"c":null}]}}`},
		"empty key":         {`{"":0}`, `{"":0}`},
		"last one counts":   {`{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		"keys differ":       {`{"a":1,"A":2}`, `{"a":1,"A":2}`},
		"null, false, \"\"": {`{"a":null,"b":false,"c":""}`, `{"a":null,"b":false,"c":""}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(object(t, c.text).Bytes()); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestI2_ObjectErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:               `is not valid JSON at byte 0: unexpected end of JSON input`,
		` `:              `is not valid JSON at byte 1: unexpected end of JSON input`,
		`null`:           `is not a JSON object`,
		`[]`:             `is not a JSON object`,
		`"x"`:            `is not a JSON object`,
		`{`:              `is not valid JSON at byte 1: unexpected end of JSON input`,
		`{"a":1`:         `is not valid JSON at byte 6: unexpected end of JSON input`,
		`{"a":1,}`:       `is not valid JSON at byte 8: invalid character '}' looking for beginning of object key string`,
		`{"a" 1}`:        `is not valid JSON at byte 6: invalid character '1' after object key`,
		`{"a":1 "b":2}`:  `is not valid JSON at byte 8: invalid character '"' after object key:value pair`,
		`{a:1}`:          `is not valid JSON at byte 2: invalid character 'a' looking for beginning of object key string`,
		`{"a":'b'}`:      `is not valid JSON at byte 6: invalid character '\'' looking for beginning of value`,
		`{} {}`:          `is not valid JSON at byte 4: invalid character '{' after top-level value`,
		`{}}`:            `is not valid JSON at byte 3: invalid character '}' after top-level value`,
		"{}\x00":         `is not valid JSON at byte 3: invalid character '\x00' after top-level value`,
		"\ufeff{}":       `is not valid JSON at byte 1: invalid character 'ï' looking for beginning of value`,
		`{"a":[1,2}`:     `is not valid JSON at byte 10: invalid character '}' after array element`,
		`{"a":{"b":01}}`: `is not valid JSON at byte 12: invalid character '1' after object key:value pair`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseObject([]byte(text))
			if got := fmt.Sprint(err); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestT13ObjectEdits(t *testing.T) {
	before := object(t, `{"a":1,"b":{"x":9007199254740993},"c":"<"}`)
	for name, c := range map[string]struct {
		got  Object
		want string
	}{
		"replaced in place": {before.With("a", Quote("n")), `{"a":"n","b":{"x":9007199254740993},"c":"<"}`},
		"added at the end":  {before.With("d", Quote("<&>")), `{"a":1,"b":{"x":9007199254740993},"c":"<","d":"<&>"}`},
		"removed":           {before.Without("a", "c", "none"), `{"b":{"x":9007199254740993}}`},
		"of the zero value": {Object{}.With("a", Quote([]int{1})).Without("b"), `{"a":[1]}`},
		"value is compact":  {Object{}.With("a", json.RawMessage(" [ 1 ]\n")), `{"a":[1]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(c.got.Bytes()); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
	if got, want := string(before.Bytes()), `{"a":1,"b":{"x":9007199254740993},"c":"<"}`; got != want {
		t.Errorf("an edit changed the value that it began with: %s", got)
	}
}

// Two edits of one value must not write into each other's members.
func TestT13ObjectEditsDoNotShare(t *testing.T) {
	base := object(t, `{"a":1,"b":2,"c":3}`)
	one, other := base.With("one", Quote(1)), base.With("other", Quote(2))
	got := []string{string(one.Bytes()), string(other.Bytes()), string(base.Without("a").Bytes()), string(base.Bytes())}
	want := []string{`{"a":1,"b":2,"c":3,"one":1}`, `{"a":1,"b":2,"c":3,"other":2}`, `{"b":2,"c":3}`, `{"a":1,"b":2,"c":3}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestT13ObjectInsideOtherValues(t *testing.T) {
	in := []Object{object(t, `{"n":9007199254740993,"s":"<&>"}`), {}}
	raw := Quote(map[string]any{"list": in})
	if want := `{"list":[{"n":9007199254740993,"s":"<&>"},{}]}`; string(raw) != want {
		t.Errorf("got %s\nwant %s", raw, want)
	}
	var out struct{ List []Object }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out.List, asText); diff != "" {
		t.Error(diff)
	}
	if err := json.Unmarshal([]byte(`[1]`), &in); err == nil {
		t.Error("a number was read as an object")
	}
	if keys := in[0].Keys(); !cmp.Equal(keys, []string{"n", "s"}) {
		t.Errorf("the keys are %q", keys)
	}
}

var asText = cmp.Transformer("text", func(o Object) string { return string(o.Bytes()) })

// A user's object may be as wide as the API server lets it be; what reading it costs
// must not grow with the square.
func TestI2_WideObjectIsReadInOnePass(t *testing.T) {
	const keys = 50_000
	var b strings.Builder
	for i := range keys {
		fmt.Fprintf(&b, `,"k%d":1`, i)
	}
	text := []byte("{" + b.String()[1:] + "}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := object(t, string(text))
	runtime.ReadMemStats(&after)
	if n := len(o.Keys()); n != keys {
		t.Errorf("%d keys were read, want %d", n, keys)
	}
	if used, most := after.TotalAlloc-before.TotalAlloc, uint64(100*len(text)); used > most {
		t.Errorf("reading %d bytes took %d bytes of memory, want less than %d", len(text), used, most)
	}
}

func TestI2_QuotePanicsOnWhatDoesNotMarshal(t *testing.T) {
	defer func() {
		if got, want := fmt.Sprint(recover()), "cniconf: value of type func() does not marshal: json: unsupported type: func()"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}()
	Quote(func() {})
}
