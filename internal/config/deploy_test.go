package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestI3_DeployedConfigurations: what we install, and what people have installed, is
// understood to the last key.
func TestI3_DeployedConfigurations(t *testing.T) {
	texts := map[string][]byte{}
	var files []string
	for _, depth := range []string{"*", "*/*"} {
		found, err := filepath.Glob("../../deploy/" + depth + "/daemon-config.json")
		if err != nil || len(found) == 0 {
			t.Fatalf("%d configurations in deploy/%s: %v", len(found), depth, err)
		}
		files = append(files, found...)
	}
	var err error
	for _, file := range files {
		if texts[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	sample, err := os.ReadFile("../../test/deploy/samples/eks-thick-v4/original/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Data map[string]string }
	first, _, _ := strings.Cut(string(sample), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &object); err != nil {
		t.Fatal(err)
	}
	texts["the sample"] = []byte(object.Data["daemon-config.json"])

	for _, component := range []string{"per-node-certificates", "monitoring/protected"} {
		texts[component] = askedFor(t, "../../deploy/"+component+"/kustomization.yaml")
	}

	for name, text := range texts {
		_, warnings, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]Warning(nil), warnings); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// askedFor are the keys that a component's first comment asks for.
func askedFor(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(strings.ReplaceAll(string(text), "\n#", "\n"), "daemon-config.json:\n")
	keys, _, ended := strings.Cut(rest, "docs/")
	if !found || !ended {
		t.Fatalf("%s: no comment says which keys it needs", file)
	}
	return []byte("{" + keys + "}")
}
