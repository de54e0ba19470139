package cniconf

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
)

// semantic is a JSON text as a value, with the digits of its numbers.
func semantic(t testing.TB, text []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// A file with its folder means to us what it means to the runtimes' library.
func TestT13FolderAsLibcni(t *testing.T) {
	for name, c := range map[string]struct {
		list   string
		folder map[string]string // names sorted are the order
	}{
		"no folder":                    {`{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"a"}]}`, nil},
		"folder after the list":        {`{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"a"}]}`, map[string]string{"2.conf": `{"type":"c"}`, "1.conf": `{"type":"b","x":1}`}},
		"folder alone":                 {`{"name":"n","cniVersion":"1.1.0"}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"neither":                      {`{"name":"n","cniVersion":"1.1.0"}`, nil},
		"empty list, with folder":      {`{"name":"n","plugins":[]}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"null list, with folder":       {`{"name":"n","plugins":null}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"inlined only":                 {`{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"inlined only, as text":        {`{"name":"n","loadOnlyInlinedPlugins":"True","plugins":[{"type":"a"}]}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"inlined only, none":           {`{"name":"n","loadOnlyInlinedPlugins":true}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"not inlined only":             {`{"name":"n","loadOnlyInlinedPlugins":"false","plugins":[{"type":"a"}]}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"a list with a stray type":     {`{"name":"n","type":"x","plugins":[{"type":"a"}]}`, map[string]string{"1.conf": `{"type":"b"}`}},
		"a folder's file without type": {`{"name":"n","plugins":[{"type":"a"}]}`, map[string]string{"1.conf": `{}`}},
		"other suffixes":               {`{"name":"n","plugins":[{"type":"a"}]}`, map[string]string{"1.conflist": `{"type":"b"}`}},
		"versions on offer":            {`{"name":"n","cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0","7.0.0"],"plugins":[{"type":"a"}]}`, nil},
		"a bad version on offer":       {`{"name":"n","cniVersions":["x"],"plugins":[{"type":"a"}]}`, nil},
		"keys of the list":             {`{"name":"n","disableCheck":"true","disableGC":true,"plugins":[{"type":"a","capabilities":{"mac":true}}]}`, nil},
		"a bad key of the list":        {`{"name":"n","disableCheck":"yes","plugins":[{"type":"a"}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "10-n.conflist")
			write(t, file, c.list)
			for name, text := range c.folder {
				write(t, filepath.Join(dir, "n", name), text)
			}
			theirs, theirErr := libcni.NetworkConfFromFile(file)
			ours, ourErr := readAsCallersDo(t, file, filepath.Join(dir, "n"))
			if (theirErr == nil) != (ourErr == nil) {
				t.Fatalf("libcni says %v, we say %v", theirErr, ourErr)
			}
			if theirErr != nil {
				return
			}
			want := told{Name: theirs.Name, Version: theirs.CNIVersion, List: true, DisableCheck: theirs.DisableCheck, NoGC: theirs.DisableGC}
			if want.Version == "" {
				want.Version = "0.1.0"
			}
			for _, p := range theirs.Plugins {
				want.Types, want.Capabilities = append(want.Types, p.Network.Type), append(want.Capabilities, p.Network.Capabilities)
			}
			got := tell(ours)
			got.Text = ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("libcni -, ours +:\n%s", diff)
			}
			for i, p := range theirs.Plugins {
				if diff := cmp.Diff(semantic(t, p.Bytes), semantic(t, ours.Plugins()[i].Object().Bytes())); diff != "" {
					t.Errorf("plugin %d: libcni -, ours +:\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(tell(ours), tell(config(t, string(ours.Bytes())))); diff != "" {
				t.Errorf("the text is not complete in itself:\n%s", diff)
			}
		})
	}
}

func readAsCallersDo(t *testing.T, file, folder string) (Config, error) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var more []Plugin
	for _, path := range paths {
		p, err := ParsePlugin(read(t, path))
		if err != nil {
			return Config{}, err
		}
		more = append(more, p)
	}
	return ParseWithFolder(read(t, file), more)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A conf is never chained with a folder: v4 gives it to its one plugin.
func TestT13ConfHasNoFolder(t *testing.T) {
	p, err := ParsePlugin([]byte(`{"type":"b"}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseWithFolder([]byte(`{"name":"n","type":"a"}`), []Plugin{p})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tell(config(t, `{"name":"n","type":"a"}`)), tell(c)); diff != "" {
		t.Error(diff)
	}
}

// calls is an invoke.Exec that keeps each plugin's stdin.
type calls struct {
	version.PluginDecoder
	stdin [][]byte
}

func (*calls) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (c *calls) ExecPlugin(_ context.Context, _ string, stdin []byte, _ []string) ([]byte, error) {
	c.stdin = append(c.stdin, stdin)
	return []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.7/24"}]}`), nil
}

// Each plugin of a list gets from us what it gets from libcni, numbers that libcni
// cannot hold excepted.
func TestT13StdinAsLibcni(t *testing.T) {
	const text = `{"vendor":1,"name":"net","cniVersion":"1.0.0","plugins":[` +
		`{"type":"bridge","name":"x","capabilities":{"mac":true,"ips":false,"none":true},"ipam":{"type":"static","n":[1,2.5]},"html":"<&>"},` +
		`{"type":"tuning","cniVersion":"0.2.0","note":"日本"}]}`
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	exec := &calls{}
	rt := &libcni.RuntimeConf{ContainerID: "c", NetNS: "/n", IfName: "eth0", CapabilityArgs: map[string]any{"mac": "02:00:00:00:00:01", "ips": []string{"10.0.0.7/24"}, "dns": 1}}
	if _, err := libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), exec).AddNetworkList(t.Context(), list, rt); err != nil {
		t.Fatal(err)
	}
	ours, args := config(t, text), map[string]json.RawMessage{}
	for name, value := range rt.CapabilityArgs {
		args[name] = Quote(value)
	}
	prev := map[string]json.RawMessage{"prevResult": json.RawMessage(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.7/24"}]}`)}
	want, got := []any{semantic(t, exec.stdin[0]), semantic(t, exec.stdin[1])}, []any{
		semantic(t, ours.Stdin(ours.Plugins()[0], args, nil)), semantic(t, ours.Stdin(ours.Plugins()[1], args, prev)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("libcni -, ours +:\n%s", diff)
	}
}
