package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

var (
	_ gather.Pods     = (*Folder)(nil)
	_ gather.Networks = (*Folder)(nil)
)

// unpack writes the files of a txtar archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(dir, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const folder = `
-- b.yaml --
# a comment, and nothing else
---
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {k8s.v1.cni.cncf.io/networks: net-a}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: net-a, annotations: {k8s.v1.cni.cncf.io/resourceName: vendor.example/nic}}
spec:
  config: |
    {"type": "macvlan", "big": 9007199254740993}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: prod}
-- a.yml --
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: late, namespace: prod, uid: u1, annotations: {kubernetes.io/config.source: file}}
- apiVersion: k8s.cni.cncf.io/v1
  kind: NetworkAttachmentDefinition
  metadata: {name: empty, namespace: prod}
-- c.json --
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": {"x": "y"}}}
-- notes.txt --
not: [yaml
-- sub/d.yaml --
not: [yaml
`

func TestI2_FolderInPlaceOfACluster(t *testing.T) {
	dir := unpack(t, folder)
	f, warnings, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	late := gather.Pod{Static: true, Subject: plan.Subject{
		Pod:         plan.Pod{Namespace: "prod", Name: "late", UID: "u1"},
		Annotations: map[string]string{netspec.AnnotationConfigSource: "file"},
	}}
	web := gather.Pod{Subject: plan.Subject{
		Pod:         plan.Pod{Namespace: "default", Name: "web", UID: "82b3ade9-d00c-d164-2a4d-420e670d6cd9"},
		Annotations: map[string]string{"x": "y"},
	}}
	if diff := cmp.Diff([]gather.Pod{late, web}, f.Pods()); diff != "" {
		t.Error(diff)
	}
	wantNetworks := map[netspec.Ref]plan.NAD{
		{Namespace: "prod", Name: "empty"}: {Ref: netspec.Ref{Namespace: "prod", Name: "empty"}},
		{Namespace: "default", Name: "net-a"}: {
			Ref:         netspec.Ref{Namespace: "default", Name: "net-a"},
			Config:      `{"type": "macvlan", "big": 9007199254740993}` + "\n",
			Annotations: map[string]string{netspec.AnnotationResourceName: "vendor.example/nic"},
		},
	}
	if diff := cmp.Diff(wantNetworks, f.networks); diff != "" {
		t.Error(diff)
	}
	wantWarnings := []Warning{
		Warning(dir + "/b.yaml: document 4: Deployment prod/shop: is neither a Pod nor a NetworkAttachmentDefinition; left out"),
		Warning(dir + "/c.json: document 1: Pod default/web: replaces an earlier one"),
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Error(diff)
	}
}

func TestI2_FolderAnswersAsAPort(t *testing.T) {
	f, _, err := Load(unpack(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	cached, ok := f.Cached("prod", "late")
	live, err := f.Live(t.Context(), "prod", "late")
	if diff := cmp.Diff(cached, live); !ok || err != nil || diff != "" || live.UID != "u1" {
		t.Errorf("%v, %v\n%s", ok, err, diff)
	}
	if _, ok := f.Cached("default", "late"); ok {
		t.Error("found a pod in another namespace")
	}
	_, err = f.Live(t.Context(), "default", "late")
	if !errors.Is(err, gather.ErrNotFound) || err.Error() != "pod default/late: not found in the manifests" {
		t.Errorf("%v", err)
	}
	ref := netspec.Ref{Namespace: "default", Name: "net-a"}
	if network, err := f.Network(t.Context(), ref); err != nil || network.Ref != ref {
		t.Errorf("%v, %v", network, err)
	}
	ref.Name = "net-b"
	_, err = f.Network(t.Context(), ref)
	if !errors.Is(err, gather.ErrNotFound) || err.Error() != "NetworkAttachmentDefinition default/net-b: not found in the manifests" {
		t.Errorf("%v", err)
	}
}

func TestI2_EarlierPodKeepsItsPlace(t *testing.T) {
	f, _, err := Load(unpack(t, `
-- a.yaml --
{apiVersion: v1, kind: Pod, metadata: {name: one}}
---
{apiVersion: v1, kind: Pod, metadata: {name: two}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one, annotations: {x: z}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	one := gather.Pod{Subject: plan.Subject{
		Pod:         plan.Pod{Namespace: "default", Name: "one", UID: uid(netspec.Ref{Namespace: "default", Name: "one"})},
		Annotations: map[string]string{"x": "z"},
	}}
	two := gather.Pod{Subject: plan.Subject{Pod: plan.Pod{Namespace: "default", Name: "two", UID: uid(netspec.Ref{Namespace: "default", Name: "two"})}}}
	if diff := cmp.Diff([]gather.Pod{one, two}, f.Pods()); diff != "" {
		t.Error(diff)
	}
}

// TestI2_ErrorsNameTheirPlace gives, for one document each, the parts that the message
// must have after the file's name.
func TestI2_ErrorsNameTheirPlace(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		place string
		cause string
	}{
		"not YAML":        {"a: [", ": document 1: ", "yaml: "},
		"second document": {"{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod}\n", ": document 2: Pod default/: ", "metadata.name is missing"},
		"no mapping":      {"- a\n- b\n", ": document 1: ", "cannot unmarshal array"},
		"no kind":         {"a: b\n", ": document 1:  default/: ", "has no kind"},
		"in a list":       {"{apiVersion: v1, kind: PodList, items: [{apiVersion: v1, kind: Pod}]}\n", ": document 1, item 1: Pod default/: ", "metadata.name is missing"},
		"annotation":      {"{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {x: 1}}}\n", ": document 1: Pod default/a: ", "annotations"},
		"config": {
			"{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: net, namespace: p}, spec: {config: {type: x}}}\n",
			": document 1: NetworkAttachmentDefinition p/net: ", "spec.config must be a string",
		},
		"unnamed network": {
			"{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition}\n",
			": document 1: NetworkAttachmentDefinition default/: ", "metadata.name is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, "-- x.yaml --\n"+c.text)
			_, _, err := Load(dir)
			if err == nil || !strings.HasPrefix(err.Error(), dir+"/x.yaml"+c.place) || !strings.Contains(err.Error(), c.cause) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestI2_AllErrorsAtOnce(t *testing.T) {
	dir := unpack(t, "-- a.yaml --\na: [\n-- b.yaml --\n{apiVersion: v1, kind: Pod}\n")
	_, _, err := Load(dir)
	if err == nil || !strings.Contains(err.Error(), "a.yaml") || !strings.Contains(err.Error(), "b.yaml") {
		t.Errorf("error: %v", err)
	}
	if _, _, err := Load(dir + "/absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent folder: %v", err)
	}
}
