package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestI3_MakefileKnowsWhatItBuilds: from a checkout, and from an archive of the sources,
// which may lie in another project's checkout.
func TestI3_MakefileKnowsWhatItBuilds(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	const archive = "v5.0.0-dev unknown unknown 2026-12-01T08:00:00Z"
	for name, tt := range map[string]struct {
		git   string // run before, in the sources' folder
		given []string
		want  string
	}{
		"an archive":                      {want: archive},
		"an archive in another's project": {git: "cd .. && git init -q && git commit -q --allow-empty -m x && git tag v9", want: archive},
		"a project without a commit":      {git: "git init -q", want: "v5.0.0-dev unknown dirty 2026-12-01T08:00:00Z"},
		"a checkout":                      {git: "git init -q && git add . && git commit -q -m x && git tag v5.1.0", want: "v5.1.0 COMMIT clean 2026-12-02T01:00:00Z"},
		"a changed one":                   {git: "git init -q && git commit -q --allow-empty -m x && git tag v5.1.0", want: "v5.1.0 COMMIT dirty 2026-12-02T01:00:00Z"},
		"what is given":                   {given: []string{"VERSION=v6.0.0", "SOURCE_DATE_EPOCH=0"}, want: "v6.0.0 unknown unknown 1970-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sources")
			run := func(name string, args ...string) string {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir = dir
				cmd.Env = []string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CEILING_DIRECTORIES=" + filepath.Dir(filepath.Dir(dir)), "GIT_COMMITTER_DATE=2026-12-02T01:00:00Z",
					"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x",
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			file, at := filepath.Join(dir, "Makefile"), time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
			for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(file, makefile, 0o600), os.Chtimes(file, at, at)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if tt.git != "" {
				run("sh", "-ec", tt.git)
			}
			show := []string{"-s", "--eval", `show: ; @echo '$(VERSION) $(COMMIT) $(TREE) $(DATE)'`, "show"}
			commit := run("sh", "-c", "git rev-parse --verify HEAD 2>/dev/null || echo none")
			want := strings.Replace(tt.want, "COMMIT", commit, 1)
			got := strings.Replace(run("make", append(show, tt.given...)...), "+00:00", "Z", 1) // as git of this age has it
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
