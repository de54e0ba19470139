package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// TestI3_ArtifactKeyIsTheContent: whatever goes into a build makes another key, and
// nothing else does.
func TestI3_ArtifactKeyIsTheContent(t *testing.T) {
	source := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(source, "go.sum"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(args ...string) artifact {
		return artifact{Name: "tool", Inputs: []string{"go.sum"}, Steps: []step{{Args: args}}}
	}
	write("one")
	first := must(with("build", "-a").key(source))
	env := with("build", "-a")
	env.Steps[0].Env = []string{"CGO_ENABLED=1"}
	keys := map[string]string{
		"the same":          must(with("build", "-a").key(source)),
		"other flags":       must(with("build", "-b").key(source)),
		"other environment": must(env.key(source)),
	}
	write("two")
	keys["other content"] = must(with("build", "-a").key(source))
	got := map[string]bool{}
	for name, key := range keys {
		got[name] = key == first
	}
	want := map[string]bool{"the same": true, "other flags": false, "other environment": false, "other content": false}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestI3_ArtifactIsBuiltOnce: by whoever comes first; what a killed build has left does
// not count, nor does a build that failed.
func TestI3_ArtifactIsBuiltOnce(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	c := cache{dir: filepath.Join(dir, "cache"), source: dir, report: t.Logf}
	if err := os.MkdirAll(filepath.Join(c.dir, "building", "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := artifact{Name: "tool", Steps: []step{
		{Args: []string{"sh", "-c", "echo built >>" + log}},
		{Args: []string{"sh", "-c", `test "$PWD" = ` + outDir + ` && cp ` + log + ` program`}},
	}}
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { _, err := c.get(t.Context(), a); return err })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	built := must(c.get(t.Context(), a))
	if got := fmt.Sprintf("%s%v", must(os.ReadFile(filepath.Join(built, "program"))), names(t, built)); got != "built\n[program]" {
		t.Errorf("%s", got)
	}
	a.Steps[1].Args = []string{"sh", "-c", "echo why; exit 3"}
	if _, err := c.get(t.Context(), a); err == nil || err.Error() != "building tool: sh: exit status 3: why" {
		t.Errorf("error %v", err)
	}
	if d := cmp.Diff([]string{"building", "lock", filepath.Base(built)}, names(t, c.dir)); d != "" {
		t.Error(d)
	}
}

// TestI3_ArtifactNeedsACheckout: as its files do.
func TestI3_ArtifactNeedsACheckout(t *testing.T) {
	if _, err := (artifact{Name: "tool", Inputs: []string{"go.mod"}}).key(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	for _, e := range must(os.ReadDir(dir)) {
		list = append(list, e.Name())
	}
	return list
}
