package cnirun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

const twoPlugins = `{"cniVersion":"1.1.0","name":"net-a","x-top":{"deep":[1,{"n":9007199254740993}]},"plugins":[
	{"type":"first","capabilities":{"mac":true,"off":false},"x":{"b":1,"a":[null,9007199254740993]},"html":"<&>",
	 "ipam":{"type":"store","subnet":"10.1.0.0/16","range":{"s":1},"x1":1.50,"x2":true,"x3":"","x4":[{}]},"args":{"cni":{"k":12345678901234567890}}},
	{"type":"second","capabilities":{"deviceID":true},"note":"é","pciBusID":"0000:00:01.0"}]}`

func netA(t *testing.T) attach.Attachment {
	return attach.Attachment{
		Attachment: plan.Attachment{
			Network: "ns/net-a", Interface: "net1", Config: parse(t, twoPlugins),
			Args: []plan.Arg{{"IgnoreUnknown", "true"}, {"K8S_POD_NAME", "pod=a"}},
			CapabilityArgs: map[string]json.RawMessage{
				"mac": json.RawMessage(`"02:00:00:00:00:07"`), "off": json.RawMessage(`1`), "deviceID": json.RawMessage(`"dev"`), "big": json.RawMessage(`9007199254740993`),
			},
		},
		Sandbox: attach.Sandbox{ContainerID: "cid", NetNS: "/run/netns/x"},
	}
}

const (
	firstStdin  = `{"type":"first","capabilities":{"mac":true,"off":false},"x":{"b":1,"a":[null,9007199254740993]},"html":"<&>","ipam":{"type":"store","subnet":"10.1.0.0/16","range":{"s":1},"x1":1.50,"x2":true,"x3":"","x4":[{}]},"args":{"cni":{"k":12345678901234567890}},"cniVersion":"1.1.0","name":"net-a","runtimeConfig":{"mac":"02:00:00:00:00:07"}}`
	secondStdin = `{"type":"second","capabilities":{"deviceID":true},"note":"é","pciBusID":"0000:00:01.0","cniVersion":"1.1.0","name":"net-a","runtimeConfig":{"deviceID":"dev"}}`
	result1     = `{"cniVersion":"1.1.0","interfaces":[{"name":"net1","mtu":1500}],"x":9007199254740993}`
	result2     = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/16"}],"y":{"z":9007199254740993}}`
)

func with(stdin, key, value string) string {
	return strings.TrimSuffix(stdin, "}") + `,"` + key + `":` + value + "}"
}

func (r *rig) env(verb string) map[string]string {
	return map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": "cid", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "net1",
		"CNI_ARGS": "IgnoreUnknown=true;K8S_POD_NAME=pod=a", "CNI_PATH": strings.Join(r.Path, ":"), "FAKE_MARK": "kept",
	}
}

func (r *rig) saw(plugin, verb, stdin string) record {
	return record{Plugin: plugin, Verb: verb, Env: r.env(verb), Stdin: json.RawMessage(stdin)}
}

func (r *rig) expect(want ...record) {
	r.Helper()
	if diff := cmp.Diff(want, r.log()); diff != "" {
		r.Errorf("what the plugins saw (-want +got):\n%s", diff)
	}
}

func (r *rig) fails(err error, text string, code uint) {
	r.Helper()
	var e *types.Error
	text = strings.ReplaceAll(text, "$DIR", r.dir)
	if !errors.As(err, &e) || e.Code != code || err.Error() != text {
		r.Errorf("got error %v (%+v)\nwant      %s (code %d)", err, e, text, code)
	}
}

func answers(stdout string) map[string]script { return map[string]script{"ADD": {Stdout: stdout}} }

func TestT13FaithfulConfig(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(result1), "second": answers(result2)})
	run, ctx, a := New(r.Options), t.Context(), netA(t)

	got, err := run.Add(ctx, a)
	r.must(err)
	if string(got) != result2 {
		t.Errorf("result is %s, want %s", got, result2)
	}
	r.expect(r.saw("first", "ADD", firstStdin), r.saw("second", "ADD", with(secondStdin, "prevResult", result1)))

	r.must(run.Check(ctx, a, got))
	r.expect(r.saw("first", "CHECK", with(firstStdin, "prevResult", result2)), r.saw("second", "CHECK", with(secondStdin, "prevResult", result2)))

	r.must(run.Del(ctx, a, got))
	r.expect(r.saw("second", "DEL", with(secondStdin, "prevResult", result2)), r.saw("first", "DEL", with(firstStdin, "prevResult", result2)))

	r.must(run.Del(ctx, a, nil))
	r.must(run.Del(ctx, a, json.RawMessage(`{"half`)))
	r.expect(r.saw("second", "DEL", secondStdin), r.saw("first", "DEL", firstStdin), r.saw("second", "DEL", secondStdin), r.saw("first", "DEL", firstStdin))
}

func TestT16NamespaceGone(t *testing.T) {
	for _, path := range []string{"", "/run/netns/gone"} {
		r := newRig(t, map[string]map[string]script{"first": nil, "second": nil})
		a := netA(t)
		a.Sandbox.NetNS = path
		r.must(New(r.Options).Del(t.Context(), a, nil))
		want := []record{r.saw("second", "DEL", secondStdin), r.saw("first", "DEL", firstStdin)}
		want[0].Env["CNI_NETNS"], want[1].Env["CNI_NETNS"] = path, path
		r.expect(want...)
	}
}

func TestT17AllAreDeleted(t *testing.T) {
	r := newRig(t, map[string]map[string]script{
		"first":  {"ADD": {Stdout: result1}, "DEL": {Stdout: `{"code":101,"msg":"address store down","details":"10.0.0.9"}`, Exit: 1}},
		"second": {"ADD": {Stdout: result2}, "DEL": {Stdout: `{"cniVersion":"1.1.0","code":3,"msg":"unknown\ncontainer"}`, Exit: 2}},
	})
	run, a := New(r.Options), netA(t)
	_, err := run.Add(t.Context(), a)
	r.must(err)
	r.log()
	err = run.Del(t.Context(), a, nil)
	r.fails(err, "plugin \"second\" (DEL): unknown container\nplugin \"first\" (DEL): address store down; 10.0.0.9", 3)
	r.expect(r.saw("second", "DEL", secondStdin), r.saw("first", "DEL", firstStdin))
	var codes []uint
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		var e *types.Error
		errors.As(one, &e)
		codes = append(codes, e.Code)
	}
	if diff := cmp.Diff([]uint{3, 101}, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(run.cacheFile(a)); err != nil {
		t.Errorf("the cache file must stay after a failed DEL: %v", err)
	}
}

func TestT25Versions(t *testing.T) {
	const list = `{"cniVersion":"VERSION","name":"net-a","plugins":[{"type":"first"},{"type":"second"}]DISABLE}`
	for _, test := range []struct {
		version, disable string
		want             string // verbs that ran, with "+" where prevResult came along
	}{
		{"0.3.1", "", "ADD ADD+ DEL DEL"},
		{"0.4.0", "", "ADD ADD+ CHECK+ CHECK+ DEL+ DEL+"},
		{"1.0.0", "", "ADD ADD+ CHECK+ CHECK+ DEL+ DEL+"},
		{"1.1.0", "", "ADD ADD+ CHECK+ CHECK+ STATUS STATUS GC GC DEL+ DEL+"},
		{"1.1.0", `,"disableCheck":true,"disableGC":true`, "ADD ADD+ STATUS STATUS DEL+ DEL+"},
	} {
		t.Run(test.version+test.disable, func(t *testing.T) {
			r := newRig(t, map[string]map[string]script{"first": answers(`{}`), "second": answers(`{}`)})
			run, a := New(r.Options), netA(t)
			a.Config = parse(t, strings.NewReplacer("VERSION", test.version, "DISABLE", test.disable).Replace(list))
			result, err := run.Add(t.Context(), a)
			r.must(err)
			if want := `{"cniVersion":"` + test.version + `"}`; string(result) != want {
				t.Errorf("result without a version became %s, want %s", result, want)
			}
			r.must(run.Check(t.Context(), a, result))
			r.must(run.Status(t.Context(), a.Config))
			r.must(run.GC(t.Context(), a.Config, nil))
			r.must(run.Del(t.Context(), a, result))
			var ran []string
			for _, one := range r.log() {
				if bytes.Contains(one.Stdin, []byte(`"prevResult":`+string(result))) {
					one.Verb += "+"
				}
				ran = append(ran, one.Verb)
			}
			if got := strings.Join(ran, " "); got != test.want {
				t.Errorf("ran  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestT25ResultConverted(t *testing.T) {
	old := `{"cniVersion":"0.4.0","interfaces":[{"name":"net1"}],"ips":[{"version":"4","address":"10.1.0.2/16","gateway":"10.1.0.1"}],"dns":{}}`
	r := newRig(t, map[string]map[string]script{"first": answers(old), "second": nil})
	a := netA(t)
	a.Config = parse(t, `{"cniVersion":"1.0.0","name":"net-a","type":"first"}`)
	got, err := New(r.Options).Add(t.Context(), a)
	r.must(err)
	if want := `{"cniVersion":"1.0.0","interfaces":[{"name":"net1"}],"ips":[{"address":"10.1.0.2/16","gateway":"10.1.0.1"}]}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestT25StatusAndGC(t *testing.T) {
	down := map[string]script{"STATUS": {Stdout: `{"code":50,"msg":"not available"}`, Exit: 1}, "GC": {Stdout: `{"code":999,"msg":"store down"}`, Exit: 1}}
	r := newRig(t, map[string]map[string]script{"first": down, "second": down})
	run, config := New(r.Options), netA(t).Config
	plain := strings.NewReplacer(`,"runtimeConfig":{"mac":"02:00:00:00:00:07"}`, "", `,"runtimeConfig":{"deviceID":"dev"}`, "")
	first, second := plain.Replace(firstStdin), plain.Replace(secondStdin)
	bare := func(plugin, verb, stdin string) record {
		rec := r.saw(plugin, verb, stdin)
		rec.Env = map[string]string{"CNI_COMMAND": verb, "CNI_PATH": strings.Join(r.Path, ":"), "FAKE_MARK": "kept"}
		return rec
	}

	r.fails(run.Status(t.Context(), config), `plugin "first" (STATUS): not available`, types.ErrPluginNotAvailable)
	r.expect(bare("first", "STATUS", first))

	for list, valid := range map[string][]types.GCAttachment{
		`[]`:                                    nil,
		`[{"containerID":"c","ifname":"net1"}]`: {{ContainerID: "c", IfName: "net1"}},
	} {
		r.fails(run.GC(t.Context(), config, valid), "plugin \"first\" (GC): store down\nplugin \"second\" (GC): store down", types.ErrInternal)
		both := func(stdin string) map[string]json.RawMessage {
			return object(t, with(with(stdin, "cni.dev/attachments", list), "cni.dev/valid-attachments", list))
		}
		log := r.log()
		if diff := cmp.Diff([]map[string]json.RawMessage{both(first), both(second)}, []map[string]json.RawMessage{object(t, string(log[0].Stdin)), object(t, string(log[1].Stdin))}); diff != "" {
			t.Errorf("stdin at GC (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(bare("first", "GC", "").Env, log[0].Env); diff != "" {
			t.Errorf("environment at GC (-want +got):\n%s", diff)
		}
	}
}

func object(t *testing.T, raw string) (o map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestC1_7CapabilityArgsOnlyWhereDeclared(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`), "second": answers(`{}`)})
	_, err := New(r.Options).Add(t.Context(), netA(t))
	r.must(err)
	var got []string
	for _, one := range r.log() {
		got = append(got, string(object(t, string(one.Stdin))["runtimeConfig"]))
	}
	if diff := cmp.Diff([]string{`{"mac":"02:00:00:00:00:07"}`, `{"deviceID":"dev"}`}, got); diff != "" {
		t.Errorf("runtimeConfig (-want +got):\n%s", diff)
	}
}

func TestI2_AddEndsAtTheFirstFailure(t *testing.T) {
	ok := answers(result1)
	for name, test := range map[string]struct {
		first script
		text  string
		code  uint
	}{
		"code kept":          {script{Stdout: `{"code":4711,"msg":"no","details":"why\nnot"}`, Exit: 1}, `plugin "first" (ADD): no; why not`, 4711},
		"try again later":    {script{Stdout: `{"code":11,"msg":"later"}`, Stderr: "noise", Exit: 1}, `plugin "first" (ADD): later`, 11},
		"silent":             {script{Exit: 3}, `plugin "first" (ADD): failed without a CNI error (exit status 3)`, 999},
		"garbled":            {script{Stdout: "\x00\x01", Stderr: "one\ntwo\n\n three\t\x01\nfour", Exit: 1}, `plugin "first" (ADD): failed without a CNI error (exit status 1); two | three | four`, 999},
		"not an error":       {script{Stdout: `{}`, Exit: 1}, `plugin "first" (ADD): failed without a CNI error (exit status 1)`, 999},
		"ended by a signal":  {script{Signal: 9, Stderr: "out of memory"}, `plugin "first" (ADD): failed without a CNI error (signal: killed); out of memory`, 999},
		"no result":          {script{}, `plugin "first" (ADD): stdout is not a CNI result; is not valid JSON at byte 0: unexpected end of JSON input`, 6},
		"a word":             {script{Stdout: `"done"`}, `plugin "first" (ADD): stdout is not a CNI result; is not a JSON object`, 6},
		"wrong type":         {script{Stdout: `{"ips":7}`}, `plugin "first" (ADD): stdout is not a CNI result; json: cannot unmarshal number into Go struct field Result.ips of type []*types100.IPConfig`, 6},
		"version of no type": {script{Stdout: `{"cniVersion":7}`}, `plugin "first" (ADD): stdout is not a CNI result; has a key "cniVersion" of the wrong type: json: cannot unmarshal number into Go value of type string`, 6},
		"unknown version":    {script{Stdout: `{"cniVersion":"9.0.0"}`}, `plugin "first" (ADD): stdout is not a CNI result; unsupported CNI result version "9.0.0"`, 6},
		"too much":           {script{Flood: 17}, `plugin "first" (ADD): printed more than 16 MiB`, 6},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, map[string]map[string]script{"first": {"ADD": test.first}, "second": ok})
			run := New(r.Options)
			result, err := run.Add(t.Context(), netA(t))
			r.fails(err, test.text, test.code)
			if result != nil || len(r.log()) != 1 {
				t.Error("want no result, and the second plugin not to run")
			}
			if left, _ := filepath.Glob(filepath.Join(r.CacheDir, "results", "*")); left != nil {
				t.Errorf("cache files %v of an ADD that failed", left)
			}
		})
	}
}

func TestI2_CheckEndsAtTheFirstFailure(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": {"CHECK": {Stdout: `{"code":7,"msg":"gone"}`, Exit: 1}}, "second": nil})
	run, a := New(r.Options), netA(t)
	r.fails(run.Check(t.Context(), a, json.RawMessage(result2)), `plugin "first" (CHECK): gone`, 7)
	r.expect(r.saw("first", "CHECK", with(firstStdin, "prevResult", result2)))
	if err := run.Check(t.Context(), a, json.RawMessage(`[]`)); err == nil || err.Error() != "the recorded result of network ns/net-a is not a CNI result: it is not a JSON object" {
		t.Errorf("got %v", err)
	}
	r.expect()
}

func TestI2_AddRefusesBadNames(t *testing.T) {
	for text, edit := range map[string]func(*attach.Attachment){
		`network name "../x" is not valid; want letters, digits, '_', '.' and '-', a letter or digit first`:       func(a *attach.Attachment) { a.Config = a.Config.WithName("../x") },
		`container id "-" is not valid; want letters, digits, '_', '.' and '-', a letter or digit first`:          func(a *attach.Attachment) { a.Sandbox.ContainerID = "-" },
		`interface name "a/b" is not valid; want 1 to 15 characters without '/', ':' and spaces, and not . or ..`: func(a *attach.Attachment) { a.Interface = "a/b" },
	} {
		r := newRig(t, map[string]map[string]script{"first": answers(`{}`), "second": answers(`{}`)})
		a := netA(t)
		edit(&a)
		code := types.ErrInvalidEnvironmentVariables
		if strings.HasPrefix(text, "network") {
			code = types.ErrInvalidNetworkConfig
		}
		_, err := New(r.Options).Add(t.Context(), a)
		r.fails(err, text, code)
		r.expect()
		r.must(New(r.Options).Del(t.Context(), a, nil))
	}
}

func TestI2_SearchPath(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`), "second": answers(`{}`)})
	shadow := filepath.Join(r.dir, "shadow")
	r.must(os.MkdirAll(filepath.Join(shadow, "second"), 0o755)) // a folder is no plugin
	r.write("shadow/first", "not executable")
	r.Path = append([]string{"", shadow}, r.Path...)
	_, err := New(r.Options).Add(t.Context(), netA(t))
	r.must(err)

	r.must(os.Remove(filepath.Join(shadow, "first")))
	r.must(os.Symlink(r.Path[2]+"/second", filepath.Join(shadow, "first"))) // the first match wins
	r.write("first.json", `{"ADD":{"Stdout":"{\"x\":1}"}}`)
	r.log()
	_, err = New(r.Options).Add(t.Context(), netA(t))
	r.must(err)
	if got := r.log()[0].Env["CNI_PATH"]; got != ":"+shadow+":"+r.Path[2] {
		t.Errorf("CNI_PATH is %s", got)
	}

	a := netA(t)
	for _, name := range []string{"third", "../bin/first", ".."} {
		a.Config = parse(t, `{"cniVersion":"1.0.0","name":"n","type":"`+name+`"}`)
		r.Path = []string{"$DIR/a", "$DIR/bin"}
		for i := range r.Path {
			r.Path[i] = strings.ReplaceAll(r.Path[i], "$DIR", r.dir)
		}
		err := New(r.Options).Ready(a)
		r.fails(err, `plugin "`+name+`" (ADD): no executable file of this name in $DIR/a, $DIR/bin`, types.ErrInvalidNetworkConfig)
		if !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%v does not wrap exec.ErrNotFound", err)
		}
	}
}

// TestT18AbsentPlugin: one absent plugin of a list is found before any runs, for a DEL
// could never succeed.
func TestT18AbsentPlugin(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`)})
	err := New(r.Options).Ready(netA(t))
	r.fails(err, `plugin "second" (ADD): no executable file of this name in $DIR/bin`, types.ErrInvalidNetworkConfig)
	r.expect()
}

func TestR19StderrInLines(t *testing.T) {
	long := strings.Repeat("y", 5000)
	r := newRig(t, map[string]map[string]script{
		"first":  {"ADD": {Stdout: `{}`, Stderr: "one\n\n two \nend"}},
		"second": {"ADD": {Stdout: `{}`, Stderr: long + "\n"}},
	})
	var got bytes.Buffer
	r.Stderr = &got
	_, err := New(r.Options).Add(context.Background(), netA(t))
	r.must(err)
	want := "plugin first (ADD): one\nplugin first (ADD): two\nplugin first (ADD): end\n" +
		"plugin second (ADD): " + long[:4096] + "\nplugin second (ADD): " + long[4096:] + "\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

// TestR19MuchStderr: of a plugin that does not stop talking the first lines are logged, and
// the last ones are in the error.
func TestR19MuchStderr(t *testing.T) {
	line := strings.Repeat("y", 1023) + "\n"
	r := newRig(t, map[string]map[string]script{"first": {"ADD": {Exit: 1, Stderr: strings.Repeat(line, 1000) + "end\n"}}})
	var got bytes.Buffer
	r.Stderr = &got
	_, err := New(r.Options).Add(t.Context(), netA(t))
	if err == nil || !strings.Contains(err.Error(), "yyy") || len(err.Error()) > 4096 {
		t.Errorf("the error: %v", err)
	}
	want := strings.Repeat("plugin first (ADD): "+line, 16) + "plugin first (ADD): (985 lines more are not logged)\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

// TestI2_LongNamesInMessages are cut: a definition can be large, and its names are its author's.
func TestI2_LongNamesInMessages(t *testing.T) {
	const limit = 512
	long := strings.Repeat("n", 100000)
	r := newRig(t, nil)
	for what, text := range map[string]string{
		"type": `{"cniVersion":"1.0.0","name":"a","type":"` + long + `"}`,
		"name": `{"cniVersion":"1.0.0","name":"` + long + `","type":"first"}`,
	} {
		a := netA(t)
		a.Config = parse(t, text)
		if err := New(r.Options).Ready(a); err == nil || len(err.Error()) > limit || !strings.Contains(err.Error(), "nnn") {
			t.Errorf("%s: got %.100v..., want a message of %d bytes at most", what, err, limit)
		}
	}
}

// TestR19OverlayReachesDelegates: what the daemon lends of its environment goes over
// the runtime's, and never over what the protocol defines.
func TestR19OverlayReachesDelegates(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(result1), "second": answers(result2)})
	a := netA(t)
	a.Env = []string{"FAKE_MARK=lent", "CNI_IFNAME=wrong"}
	_, err := New(r.Options).Add(t.Context(), a)
	r.must(err)
	want := r.env("ADD")
	want["FAKE_MARK"] = "lent"
	for _, saw := range r.log() {
		if diff := cmp.Diff(want, saw.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
	}
}
