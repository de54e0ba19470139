package cniconf

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func config(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s %v", text, err)
	}
	return c
}

// told is all that a Config says of itself.
type told struct {
	Name, Version            string
	List, DisableCheck, NoGC bool
	Types                    []string
	Capabilities             []map[string]bool
	Text                     string
}

func tell(c Config) told {
	all := told{
		Name: c.Name(), Version: c.CNIVersion(), List: c.IsList(), DisableCheck: c.DisableCheck(), NoGC: c.DisableGC(), Text: string(c.Bytes()),
	}
	for _, p := range c.Plugins() {
		all.Types, all.Capabilities = append(all.Types, p.Type), append(all.Capabilities, p.Capabilities)
	}
	return all
}

const richList = `{"vendor":{"big":9007199254740993,"html":"<a>&b"},"name":"net-b","cniVersion":"1.0.0","disableCheck":true,` +
	`"plugins":[{"zeta":1,"type":"bridge","capabilities":{"mac":true,"ips":false},"ipam":{"type":"static","deep":[[{"n":1e400}]]}},{"type":"tuning","note":"日本 <&>"}],"after":null}`

func TestT13Parse(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want told
	}{
		"conf": {
			`{"type":"macvlan","x":9007199254740993}`,
			told{Version: "0.1.0", Types: []string{"macvlan"}, Capabilities: []map[string]bool{nil}, Text: `{"type":"macvlan","x":9007199254740993}`},
		},
		"list": {richList, told{
			Name: "net-b", Version: "1.0.0", List: true, DisableCheck: true, Types: []string{"bridge", "tuning"},
			Capabilities: []map[string]bool{{"mac": true, "ips": false}, nil}, Text: richList,
		}},
		"booleans as text": {
			`{"disableCheck":"TRUE","disableGC":"True","type":"x"}`,
			told{Version: "0.1.0", DisableCheck: true, NoGC: true, Types: []string{"x"}, Capabilities: []map[string]bool{nil}, Text: `{"disableCheck":"TRUE","disableGC":"True","type":"x"}`},
		},
		"null is absent": {
			`{"name":null,"cniVersion":null,"cniVersions":null,"disableCheck":null,"disableGC":null,"capabilities":null,"type":"x"}`,
			told{Version: "0.1.0", Types: []string{"x"}, Capabilities: []map[string]bool{nil}, Text: `{"name":null,"cniVersion":null,"cniVersions":null,"disableCheck":null,"disableGC":null,"capabilities":null,"type":"x"}`},
		},
		"a conf's keys in any case, as v4 reads them": {
			`{"CNIVersion":"0.3.1","Name":"n","Type":"x","Capabilities":{"mac":true}}`,
			told{Name: "n", Version: "0.3.1", Types: []string{"x"}, Capabilities: []map[string]bool{{"mac": true}}, Text: `{"CNIVersion":"0.3.1","Name":"n","Type":"x","Capabilities":{"mac":true}}`},
		},
		"the exact key goes first": {
			`{"Name":"no","name":"yes","TYPE":"no","type":"yes"}`,
			told{Name: "yes", Version: "0.1.0", Types: []string{"yes"}, Capabilities: []map[string]bool{nil}, Text: `{"Name":"no","name":"yes","TYPE":"no","type":"yes"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, tell(config(t, c.text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestI2_ParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     `is not valid JSON at byte 0: unexpected end of JSON input`,
		`[]`:                                   `is not a JSON object`,
		`{}`:                                   `has no key "type"`,
		`{"type":null}`:                        `has a key "type" that is not the name of a plugin`,
		`{"type":""}`:                          `has a key "type" that is not the name of a plugin`,
		`{"type":7}`:                           `has a key "type" that is not the name of a plugin`,
		`{"type":"x","name":7,"cniVersion":8}`: `has a key "cniVersion" of the wrong type: json: cannot unmarshal number into Go value of type string`,
		`{"type":"x","name":["n"]}`:            `has a key "name" of the wrong type: json: cannot unmarshal array into Go value of type string`,
		`{"type":"x","disableCheck":"maybe"}`:  `has a key "disableCheck" of the wrong type: want true or false`,
		`{"type":"x","disableGC":1}`:           `has a key "disableGC" of the wrong type: want true or false`,
		`{"type":"x","cniVersions":"1.0.0"}`:   `has a key "cniVersions" of the wrong type: json: cannot unmarshal string into Go value of type []string`,
		`{"type":"x","cniVersions":["one"]}`:   `has a key "cniVersions" or "cniVersion" with a bad version "one": failed to convert major version part "one": strconv.Atoi: parsing "one": invalid syntax`,
		`{"type":"x","capabilities":["mac"]}`:  `has a key "capabilities" of the wrong type: json: cannot unmarshal array into Go value of type map[string]bool`,
		`{"plugins":[]}`:                       `has an empty list of plugins`,
		`{"plugins":null}`:                     `has an empty list of plugins`,
		`{"plugins":{}}`:                       `has a key "plugins" that is not a list of objects: json: cannot unmarshal object into Go value of type []cniconf.Object`,
		`{"plugins":[1]}`:                      `has a key "plugins" that is not a list of objects: is not a JSON object`,
		`{"plugins":[null]}`:                   `has a key "plugins" that is not a list of objects: is not a JSON object`,
		`{"plugins":[{"type":"x"},{}]}`:        `plugin 2 has no key "type"`,
		`{"plugins":[{"type":"x","capabilities":1}]}`: `plugin 1 has a key "capabilities" of the wrong type: json: cannot unmarshal number into Go value of type map[string]bool`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := Parse([]byte(text))
			if got := fmt.Sprint(err); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestT13Edits(t *testing.T) {
	conf, list := config(t, `{"x":9007199254740993,"type":"macvlan","capabilities":{"mac":true}}`), config(t, richList)
	device := func(o Object) Object { return o.With("deviceID", Quote("0000:01:00.0")) }
	for name, c := range map[string]struct {
		got  Config
		want told
	}{
		"name of a conf": {conf.WithName("a&b"), told{
			Name: "a&b", Version: "0.1.0", Types: []string{"macvlan"}, Capabilities: []map[string]bool{{"mac": true}},
			Text: `{"x":9007199254740993,"type":"macvlan","capabilities":{"mac":true},"name":"a&b"}`,
		}},
		"name of a list": {list.WithName("n"), told{
			Name: "n", Version: "1.0.0", List: true, DisableCheck: true, Types: []string{"bridge", "tuning"},
			Capabilities: []map[string]bool{{"mac": true, "ips": false}, nil},
			Text: `{"vendor":{"big":9007199254740993,"html":"<a>&b"},"name":"n","cniVersion":"1.0.0","disableCheck":true,` +
				`"plugins":[{"zeta":1,"type":"bridge","capabilities":{"mac":true,"ips":false},"ipam":{"type":"static","deep":[[{"n":1e400}]]}},{"type":"tuning","note":"日本 <&>"}],"after":null}`,
		}},
		"version of a conf, its plugin sees it": {conf.WithCNIVersion("0.3.1"), told{
			Version: "0.3.1", Types: []string{"macvlan"}, Capabilities: []map[string]bool{{"mac": true}},
			Text: `{"x":9007199254740993,"type":"macvlan","capabilities":{"mac":true},"cniVersion":"0.3.1"}`,
		}},
		"each plugin of a list": {list.MapPlugins(device), told{
			Name: "net-b", Version: "1.0.0", List: true, DisableCheck: true, Types: []string{"bridge", "tuning"},
			Capabilities: []map[string]bool{{"mac": true, "ips": false}, nil},
			Text: `{"vendor":{"big":9007199254740993,"html":"<a>&b"},"name":"net-b","cniVersion":"1.0.0","disableCheck":true,` +
				`"plugins":[{"zeta":1,"type":"bridge","capabilities":{"mac":true,"ips":false},"ipam":{"type":"static","deep":[[{"n":1e400}]]},"deviceID":"0000:01:00.0"},{"type":"tuning","note":"日本 <&>","deviceID":"0000:01:00.0"}],"after":null}`,
		}},
		"the plugin of a conf": {conf.MapPlugins(device), told{
			Version: "0.1.0", Types: []string{"macvlan"}, Capabilities: []map[string]bool{{"mac": true}},
			Text: `{"x":9007199254740993,"type":"macvlan","capabilities":{"mac":true},"deviceID":"0000:01:00.0"}`,
		}},
		"one after the other": {conf.WithName("n").MapPlugins(device).WithCNIVersion("1.0.0"), told{
			Name: "n", Version: "1.0.0", Types: []string{"macvlan"}, Capabilities: []map[string]bool{{"mac": true}},
			Text: `{"x":9007199254740993,"type":"macvlan","capabilities":{"mac":true},"name":"n","deviceID":"0000:01:00.0","cniVersion":"1.0.0"}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, tell(c.got)); diff != "" {
				t.Error(diff)
			}
			if reparsed := tell(config(t, c.want.Text)); !cmp.Equal(reparsed, c.want) {
				t.Errorf("the text says something else than the value: %s", cmp.Diff(c.want, reparsed))
			}
		})
	}
	if got := string(list.Bytes()); got != richList {
		t.Errorf("an edit changed the value that it began with: %s", got)
	}
}

func TestT13ConfigInsideOtherValues(t *testing.T) {
	raw := Quote(map[string]any{"config": config(t, richList)})
	if want := `{"config":` + richList + `}`; string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	var out struct{ Config Config }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tell(config(t, richList)), tell(out.Config)); diff != "" {
		t.Error(diff)
	}
	if err := json.Unmarshal([]byte(`{"config":{}}`), &out); fmt.Sprint(err) != `has no key "type"` {
		t.Errorf("the error is %v", err)
	}
}

// CNI specification 1.1, sections 1 (cniVersions) and "version considerations": the
// newest that both sides know.
func TestT25NewestOfferedVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"x","cniVersions":["0.4.0","1.1.0","1.0.0"]}`:                      "1.1.0",
		`{"type":"x","cniVersion":"0.4.0","cniVersions":["0.3.1","0.3.0"]}`:         "0.4.0",
		`{"type":"x","cniVersion":"1.0.0","cniVersions":["0.4.0","1.2.0","9.0.0"]}`: "1.0.0",
		`{"type":"x","cniVersion":"9.0.0","cniVersions":["1.0.0"]}`:                 "1.0.0",
		`{"type":"x","cniVersion":"9.0.0","cniVersions":["9.1.0"]}`:                 "9.0.0",
		`{"type":"x","cniVersion":"9.0.0","cniVersions":[]}`:                        "9.0.0",
		`{"type":"x","cniVersions":["9.0.0"]}`:                                      "0.1.0",
	} {
		t.Run(text, func(t *testing.T) {
			if got := config(t, text).CNIVersion(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	forced := config(t, `{"cniVersion":"0.4.0","cniVersions":["1.0.0"],"type":"x"}`).WithCNIVersion("0.3.1")
	if got, want := string(forced.Bytes()), `{"cniVersion":"0.3.1","type":"x"}`; got != want || forced.CNIVersion() != "0.3.1" {
		t.Errorf("a wanted version left others on offer: %s", got)
	}
}

func TestC1_20Declares(t *testing.T) {
	list := config(t, richList)
	got := map[string]bool{}
	for _, capability := range []string{"mac", "ips", "portMappings"} {
		got[capability] = list.Declares(capability)
	}
	if diff := cmp.Diff(map[string]bool{"mac": true, "ips": false, "portMappings": false}, got); diff != "" {
		t.Error(diff)
	}
}

func TestT6TypeAtAnyDepth(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"multus-shim"}`:                                                             true,
		`{"plugins":[{"type":"bridge"},{"type":"multus"}]}`:                                  true,
		`{"type":"x","delegates":[{"type":"y","more":{"plugins":[[{"type":"multus"}]]}}]}`:   true,
		`{"type":"x","delegate":{"Type":"multus-shim"}}`:                                     true,
		`{"type":"x","ipam":{"type":"multus"}}`:                                              true,
		`{"type":"bridge"}`:                                                                  false,
		`{"type":"x","name":"multus","args":{"kind":"multus","types":["multus"],"type":{}}}`: false,
		`{"type":"x","note":"{\"type\":\"multus\"}"}`:                                        false,
		`{"type":"multus-like"}`:                                                             false,
	} {
		t.Run(text, func(t *testing.T) {
			if got := config(t, text).HasType("multus", "multus-shim"); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// CNI specification, section 3: name and version of the network, the capability
// arguments that the plugin declares, and what the operation adds; all else as it was.
func TestT13Stdin(t *testing.T) {
	raw := func(pairs ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = json.RawMessage(pairs[i+1])
		}
		return m
	}
	list := config(t, richList)
	for name, c := range map[string]struct {
		config             Config
		plugin             int
		capabilities, more map[string]json.RawMessage
		want               string
	}{
		"declared capabilities alone": {
			list, 0, raw("mac", `"02:00:00:00:00:01"`, "ips", `["10.0.0.1/24"]`, "portMappings", `[]`), nil,
			`{"zeta":1,"type":"bridge","capabilities":{"mac":true,"ips":false},"ipam":{"type":"static","deep":[[{"n":1e400}]]},"cniVersion":"1.0.0","name":"net-b","runtimeConfig":{"mac":"02:00:00:00:00:01"}}`,
		},
		"none declared": {
			list, 1, raw("mac", `"02:00:00:00:00:01"`), nil, `{"type":"tuning","note":"日本 <&>","cniVersion":"1.0.0","name":"net-b"}`,
		},
		"a conf without name and version": {
			config(t, `{"type":"x"}`), 0, nil, nil, `{"type":"x","cniVersion":"0.1.0","name":""}`,
		},
		"the operation's keys, in one order": {
			list, 1, nil, raw("prevResult", `{"ips":[{"address":"10.0.0.1/24"}],"n":9007199254740993}`, "cni.dev/attachments", `[]`),
			`{"type":"tuning","note":"日本 <&>","cniVersion":"1.0.0","name":"net-b","cni.dev/attachments":[],"prevResult":{"ips":[{"address":"10.0.0.1/24"}],"n":9007199254740993}}`,
		},
		"the network's name and version win": {
			config(t, `{"name":"n","cniVersion":"1.0.0","plugins":[{"name":"other","cniVersion":"0.1.0","type":"x","runtimeConfig":{"old":1},"capabilities":{"a":true}}]}`),
			0, raw("a", `"<v>"`), nil,
			`{"name":"n","cniVersion":"1.0.0","type":"x","runtimeConfig":{"a":"<v>"},"capabilities":{"a":true}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(c.config.Stdin(c.config.Plugins()[c.plugin], c.capabilities, c.more)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestR7HasTypeBesideAHugeNumber: a number that no float64 holds hides nothing.
func TestR7HasTypeBesideAHugeNumber(t *testing.T) {
	for _, text := range []string{
		`{"name":"a","type":"multus","x":1e400}`,
		`{"name":"a","plugins":[{"type":"bridge","x":-1e999999},{"type":"tuning","in":{"delegate":{"Type":"multus"}}}]}`,
	} {
		if !config(t, text).HasType("multus") {
			t.Errorf("%s: the type multus is not found", text)
		}
	}
}

// TestI4_Types: whatever plugin a configuration could run is among its types, however it
// is written, and nothing else is.
func TestI4_Types(t *testing.T) {
	got := config(t, `{"name":"type","type":"a","TYPE":"b","x":1e400,"list":["type","no",[{"type":"c","type":"d"}]],
		"ipam":{"t\u0079pe":"e","type":{"type":"f"}},"kind":{"types":"no","note":"{\"type\":\"no\"}"},"delegate":{"Type":"a"},"end":{"type":7,"n":null}}`).Types()
	if want := []string{"a", "b", "c", "d", "e", "f", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
