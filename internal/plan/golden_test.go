package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

var rewrite = flag.Bool("rewrite", false, "write what is planned into the golden files; read the difference before you commit it")

// base has the sections that other golden files leave out.
const base = "testdata/i2-base.txtar"

var (
	goldenName = regexp.MustCompile(`^(c1\.[0-9]+|t[0-9]+[a-d]?|r[0-9]+|i[0-9]+)-[a-z0-9]+(-[a-z0-9]+)*\.txtar$`)
	source     = regexp.MustCompile(`\((contract|design|issue|multi-net-spec|reports|runtimes)[\s,][^)]*\)`)
)

func goldenFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d golden files, error %v", len(files), err)
	}
	return files
}

// TestI2_GoldenNames: a golden file says in its name and first line what it holds.
func TestI2_GoldenNames(t *testing.T) {
	for _, file := range goldenFiles(t) {
		if name := filepath.Base(file); !goldenName.MatchString(name) {
			t.Errorf("%s: the name begins with no id (c1.<n>, t<n>, r<n> or i<n>) or is not in lower case", name)
		}
		if comment := string(parseArchive(t, file).Comment); !source.MatchString(comment) {
			t.Errorf("%s: the comment %q names no source in parentheses", file, comment)
		}
	}
}

// TestI2_GoldenPlans: each file of testdata is a rule of the plan, with the plan or
// the refusal that follows. Sections that a file leaves out are those of the base.
func TestI2_GoldenPlans(t *testing.T) {
	for _, file := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := parseArchive(t, file)
			s := scenario(t, archive)
			p, err := s.gatherer().Plan(t.Context(), s.config, s.call, s.pod.Annotations)
			name, got := "want.json", ""
			if err != nil {
				name, got = "want.txt", refused(t, err)
			} else {
				got = layout(t, p) + "\n"
				roundTrip(t, p)
			}
			if *rewrite {
				rewriteWant(t, file, archive, name, got)
				return
			}
			if diff := cmp.Diff(string(section(archive, name)), got); diff != "" {
				t.Errorf("%s (- want, + got):\n%s", name, diff)
			}
		})
	}
}

func refused(t *testing.T, err error) string {
	t.Helper()
	var refusal *plan.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("not a refusal: %v", err)
	}
	return fmt.Sprintf("code %d\n%v\n", refusal.CNICode(), refusal)
}

// roundTrip: a plan that crosses the socket and rests in the ledger stays the same.
func roundTrip(t testing.TB, p *plan.Plan) {
	t.Helper()
	raw, err := cniconf.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again plan.Plan
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	bytesOf := cmp.Comparer(func(a, b cniconf.Config) bool { return cmp.Equal(a.Bytes(), b.Bytes()) })
	compact := cmp.Comparer(func(a, b json.RawMessage) bool { return cmp.Equal(cniconf.Quote(a), cniconf.Quote(b)) })
	addresses := cmp.Comparer(func(a, b plan.RouteWish) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	if diff := cmp.Diff(*p, again, bytesOf, compact, addresses); diff != "" {
		t.Errorf("the plan changes when it is written and read (- before, + after):\n%s", diff)
	}
}

func rewriteWant(t *testing.T, file string, archive *txtar.Archive, name, want string) {
	t.Helper()
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want.") })
	archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(want)})
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// inputs are the sections of a golden file. It is the world that a Gatherer asks.
type inputs struct {
	config *config.Config
	call   plan.Call
	pod    struct {
		Namespace, Name, UID string
		Annotations          map[string]string
	}
	nads []struct {
		Namespace, Name, Config string
		Annotations             map[string]string
	}
	devices plan.Devices
	files   map[string][]byte
}

func (s *inputs) gatherer() *gather.Gatherer {
	return &gather.Gatherer{Networks: s, Devices: s, Files: s}
}

func scenario(t testing.TB, archive *txtar.Archive) *inputs {
	t.Helper()
	s := &inputs{files: map[string][]byte{}}
	for _, f := range slices.Concat(parseArchive(t, base).Files, archive.Files) {
		s.files[f.Name] = f.Data
	}
	cfg, _, err := config.Parse(s.files["config.json"])
	if err != nil {
		t.Fatalf("config.json: %v", err)
	}
	s.config = cfg
	var call struct {
		ContainerID, Interface string
		Args                   []plan.Arg // those beside IgnoreUnknown and K8S_POD_*
		RuntimeConfig          map[string]json.RawMessage
	}
	if err := json.Unmarshal(s.files["call.json"], &call); err != nil {
		t.Fatalf("call.json: %v", err)
	}
	for name, into := range map[string]any{"pod.yaml": &s.pod, "nads.yaml": &s.nads, "devices.json": &s.devices} {
		if err := yaml.UnmarshalStrict(s.files[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.call = plan.Call{ContainerID: call.ContainerID, Interface: call.Interface, RuntimeConfig: call.RuntimeConfig, Args: append([]plan.Arg{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_UID", s.pod.UID},
		{"K8S_POD_NAME", s.pod.Name},
		{"K8S_POD_NAMESPACE", s.pod.Namespace},
		{"K8S_POD_INFRA_CONTAINER_ID", call.ContainerID},
	}, call.Args...)}
	return s
}

func (s *inputs) Network(_ context.Context, ref netspec.Ref) (plan.NAD, error) {
	for _, nad := range s.nads {
		if nad.Namespace == ref.Namespace && nad.Name == ref.Name {
			return plan.NAD{Ref: ref, Config: nad.Config, Annotations: nad.Annotations}, nil
		}
	}
	return plan.NAD{}, gather.ErrNotFound
}

func (s *inputs) Devices(context.Context, plan.Pod) (plan.Devices, error) { return s.devices, nil }

func (s *inputs) ReadFile(path string) ([]byte, error) {
	if content, ok := s.files[path]; ok {
		return content, nil
	}
	return nil, fs.ErrNotExist
}

func (s *inputs) ReadDir(path string) ([]string, error) {
	var names []string
	for file := range s.files {
		if filepath.Dir(file) == filepath.Clean(path) {
			names = append(names, filepath.Base(file))
		}
	}
	return slices.Sorted(slices.Values(names)), nil
}

func (s *inputs) IsDir(path string) bool {
	prefix := filepath.Clean(path) + "/"
	for file := range maps.Keys(s.files) {
		if strings.HasPrefix(file, prefix) {
			return true
		}
	}
	return false
}

func parseArchive(t testing.TB, file string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func section(archive *txtar.Archive, name string) []byte {
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// layout is indented JSON in which a short value stays on one line.
func layout(t *testing.T, v any) string {
	t.Helper()
	raw, err := cniconf.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return indent(raw, "")
}

func indent(raw json.RawMessage, margin string) string {
	const width = 110
	inner := margin + "  "
	var object cniconf.Object
	var list []json.RawMessage
	switch {
	case len(margin)+len(raw) <= width:
		return string(raw)
	case raw[0] == '{' && json.Unmarshal(raw, &object) == nil:
		var lines []string
		for _, key := range object.Keys() {
			value, _ := object.Get(key)
			lines = append(lines, inner+string(cniconf.Quote(key))+": "+indent(value, inner))
		}
		return "{\n" + strings.Join(lines, ",\n") + "\n" + margin + "}"
	case raw[0] == '[' && json.Unmarshal(raw, &list) == nil:
		var lines []string
		for _, value := range list {
			lines = append(lines, inner+indent(value, inner))
		}
		return "[\n" + strings.Join(lines, ",\n") + "\n" + margin + "]"
	}
	return string(raw)
}
