package cniconf

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever parses keeps its meaning through printing and through every edit, of
// which each changes what it says and nothing else.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		richList,
		`{"type":"macvlan","name":"n","cniVersion":"1.0.0","x":[{"y":{"z":[9007199254740993,-0.0,1e400,null]}}]}`,
		`{"CNIVersion":"0.3.1","Name":"n","Type":"x","Capabilities":{"mac":true}}`,
		`{"name":"a","name":"b","cniVersions":["1.0.0","1.1.0"],"plugins":[{"type":"x","type":"y","deviceID":1}],"plugins":[{"type":"z"}]}`,
		`{"disableCheck":"True","type":"<&>","\u003ckey\u003e":"\u2028\ud800"}`,
		"{\"type\":\"x\",\"\xff\":\"\xfe\",\"\xfd\":1}",
		`{"plugins":[{"type":"x","runtimeConfig":{},"prevResult":null}]}`,
		`{"type":""}`, `{"plugins":[null]}`, `{}x`, `[`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		same(t, "printed", semantic(t, text), semantic(t, c.Bytes()))
		again, err := Parse(c.Bytes())
		if err != nil {
			t.Fatalf("what was printed does not parse: it %v", err)
		}
		same(t, "printed twice", tell(c), tell(again))

		before := func() map[string]any { return semantic(t, c.Bytes()).(map[string]any) }
		named := before()
		named["name"] = "fuzz"
		same(t, "WithName", named, semantic(t, c.WithName("fuzz").Bytes()))
		versioned := before()
		delete(versioned, "cniVersions")
		versioned["cniVersion"] = "0.4.0"
		same(t, "WithCNIVersion", versioned, semantic(t, c.WithCNIVersion("0.4.0").Bytes()))
		same(t, "both read back", [2]string{"fuzz", "0.4.0"}, [2]string{c.WithName("fuzz").Name(), c.WithCNIVersion("0.4.0").CNIVersion()})

		mapped := before()
		plugins := []any{mapped}
		if c.IsList() {
			plugins = mapped["plugins"].([]any)
		}
		for i, p := range c.Plugins() {
			same(t, "Stdin", stdin(c, plugins[i].(map[string]any)), semantic(t, c.Stdin(p, nil, map[string]json.RawMessage{"prevResult": json.RawMessage(`{}`)})))
		}
		for _, p := range plugins {
			p.(map[string]any)["deviceID"] = "d"
		}
		device := c.MapPlugins(func(o Object) Object { return o.With("deviceID", Quote("d")) })
		same(t, "MapPlugins", mapped, semantic(t, device.Bytes()))
		same(t, "untouched", tell(again), tell(c))
	})
}

func stdin(c Config, plugin map[string]any) any {
	want := maps.Clone(plugin)
	want["name"], want["cniVersion"], want["prevResult"] = c.Name(), c.CNIVersion(), map[string]any{}
	return want
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s:\n%s", what, diff)
	}
}
