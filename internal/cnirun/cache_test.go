package cnirun

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// TestC1_9CacheAsV4Wrote makes the attachments of files that Multus v4 wrote, and
// wants the same files.
func TestC1_9CacheAsV4Wrote(t *testing.T) {
	files, err := filepath.Glob("testdata/v4/*")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v4 cached
			if err := json.Unmarshal(golden, &v4); err != nil {
				t.Fatal(err)
			}
			a := attach.Attachment{
				Attachment: plan.Attachment{Network: "x", Interface: v4.IfName, Config: parse(t, string(v4.Config)), Args: v4.Args, CapabilityArgs: v4.CapabilityArgs},
				Sandbox:    attach.Sandbox{ContainerID: v4.ContainerID, NetNS: v4.NetNS},
			}
			r := newRig(t, map[string]map[string]script{"bridge": answers(string(v4.Result)), "tuning": answers(string(v4.Result))})
			run := New(r.Options)
			result, err := run.Add(t.Context(), a)
			r.must(err)

			path := filepath.Join(r.CacheDir, "results", filepath.Base(file))
			got, err := os.ReadFile(path)
			r.must(err)
			var want bytes.Buffer
			r.must(json.Compact(&want, golden))
			var trimmed map[string]any // v4 kept the line end of a file's configuration
			r.must(json.Unmarshal(want.Bytes(), &trimmed))
			trimmed["config"] = a.Config.Bytes()
			if diff := cmp.Diff(sorted(t, trimmed), sorted(t, json.RawMessage(got))); diff != "" {
				t.Errorf("cache file (-v4 +ours):\n%s", diff)
			}
			info, err := os.Stat(path)
			r.must(err)
			if info.Mode() != 0o600 {
				t.Errorf("mode is %v", info.Mode())
			}
			readByLibcni(t, r.CacheDir, a, result)

			r.must(run.Del(t.Context(), a, result))
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
				t.Errorf("left in the cache after DEL: %v", left)
			}
			r.must(run.Del(t.Context(), a, result))
		})
	}
}

// sorted is a JSON value with sorted keys, for comparison.
func sorted(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	raw, _ = json.MarshalIndent(tree, "", " ")
	return string(raw)
}

func readByLibcni(t *testing.T, dir string, a attach.Attachment, result json.RawMessage) {
	t.Helper()
	lib := libcni.NewCNIConfigWithCacheDir(nil, dir, nil)
	list := &libcni.NetworkConfigList{Name: a.Config.Name(), CNIVersion: a.Config.CNIVersion()}
	rt := &libcni.RuntimeConf{ContainerID: a.Sandbox.ContainerID, IfName: a.Interface}
	cachedResult, err := lib.GetNetworkListCachedResult(list, rt)
	if err != nil || cachedResult == nil {
		t.Fatalf("libcni reads result %v, error %v", cachedResult, err)
	}
	if diff := cmp.Diff(sorted(t, result), sorted(t, cachedResult)); diff != "" {
		t.Errorf("result as libcni reads it (-want +got):\n%s", diff)
	}
	config, found, err := lib.GetNetworkListCachedConfig(list, rt)
	if err != nil || string(config) != string(a.Config.Bytes()) {
		t.Errorf("libcni reads config %s, error %v", config, err)
	}
	var args []plan.Arg
	for _, arg := range found.Args {
		args = append(args, arg)
	}
	if diff := cmp.Diff(a.Args, args); diff != "" {
		t.Errorf("args as libcni reads them (-want +got):\n%s", diff)
	}
	if a.CapabilityArgs != nil {
		if diff := cmp.Diff(sorted(t, a.CapabilityArgs), sorted(t, found.CapabilityArgs)); diff != "" {
			t.Errorf("capability args as libcni reads them (-want +got):\n%s", diff)
		}
	}
}

func TestI2_CacheCannotBeWritten(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`)})
	r.write("cache", "a file where the folder should be")
	_, err := New(r.Options).Add(t.Context(), single(parse(t, one), nil))
	if want := "writing the result cache of network n: mkdir " + r.CacheDir + ": not a directory"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestR4TemporaryFilesAreWhereTheyAreFound: the ledger looks through cniDir for what a
// killed plugin left, nobody through the cache.
func TestR4TemporaryFilesAreWhereTheyAreFound(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`)})
	r.must(os.MkdirAll(filepath.Join(r.CacheDir, "results"), 0o700))
	w, err := fsnotify.NewBufferedWatcher(16)
	r.must(err)
	defer w.Close()
	r.must(errors.Join(w.Add(r.CacheDir), w.Add(filepath.Join(r.CacheDir, "results"))))
	_, err = New(r.Options).Add(t.Context(), single(parse(t, one), nil))
	r.must(err)
	var made []string
	for len(made) < 2 {
		if e := <-w.Events; e.Has(fsnotify.Create) {
			made = append(made, filepath.Dir(e.Name))
		}
	}
	if diff := cmp.Diff([]string{r.CacheDir, filepath.Join(r.CacheDir, "results")}, made); diff != "" {
		t.Errorf("folders of the files made (-want +got):\n%s", diff)
	}
}

// TestR2NameTooLongForTheCache: found before anything runs, and no hindrance to DEL.
func TestR2NameTooLongForTheCache(t *testing.T) {
	r := newRig(t, map[string]map[string]script{"first": answers(`{}`)})
	a := single(parse(t, one), nil)
	room := 255 - len(cacheName(a)) + len(a.Config.Name())
	a.Config = a.Config.WithName(strings.Repeat("n", room+1))
	_, err := New(r.Options).Add(t.Context(), a)
	r.fails(err, `network name "`+a.Config.Name()[:64]+`…" is too long; with container id and interface name it makes a file name of more than 255 bytes`, types.ErrInvalidNetworkConfig)
	if len(r.log()) != 0 {
		t.Error("a plugin ran")
	}
	r.must(New(r.Options).Del(t.Context(), a, nil))
	a.Config = a.Config.WithName(strings.Repeat("n", room))
	_, err = New(r.Options).Add(t.Context(), a)
	r.must(err)
}
