package manifest

import (
	"errors"
	"os"
	"testing"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

func TestI2_FolderKeepsTheStatus(t *testing.T) {
	dir := unpack(t, "-- a.yaml --\n{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u1}}\n")
	f, _, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	pod := plan.Pod{Namespace: "default", Name: "web", UID: "u1"}
	for _, text := range []string{"[1]", "[2]"} {
		if err := f.PatchStatus(t.Context(), pod, text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(StatusFile(dir, "default", "web"))
		if err != nil || string(got) != text {
			t.Errorf("status %q, %v; want %q", got, err, text)
		}
	}
	pod.UID = "u2"
	if err := f.PatchStatus(t.Context(), pod, "[]"); !errors.Is(err, gather.ErrNotFound) {
		t.Errorf("a status for another UID: %v", err)
	}
}

func TestI2_IsFolder(t *testing.T) {
	dir := unpack(t, "-- kubeconfig --\n")
	for path, want := range map[string]bool{dir: true, dir + "/kubeconfig": false, dir + "/absent": false, "": false} {
		if IsFolder(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
