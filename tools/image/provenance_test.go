package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// TestI4_ImageProvenance: the whole statement, its digests, and that it is found from the image.
func TestI4_ImageProvenance(t *testing.T) {
	file, err := filepath.Abs("testdata/multus-thick.provenance.json")
	must(t, err)
	plain(t)
	image := open(t, "multus-thick")[0]
	digest, err := image.Digest()
	must(t, err)
	chosen, err := choose("")
	must(t, err)
	prefix := "out/multus-thick_linux-" + runtime.GOARCH
	sbom, err := os.ReadFile(prefix + ".spdx.json")
	must(t, err)
	text, err := os.ReadFile(prefix + ".provenance.json")
	must(t, err)
	lock, err := parseLock("image/debian.lock")
	must(t, err)
	recorded := lock.packages[chosen[0].debian]
	golden(t, file, strings.NewReplacer(
		digest.Hex, "DIGEST", fmt.Sprintf("%x", sha256.Sum256(sbom)), "SBOM", recorded.sha256, "PACKAGE",
		runtime.Version()[len("go"):], "GO", "arch="+recorded.arch, "arch=ARCH", chosen[0].String(), "PLATFORM", chosen[0].folder(), "FOLDER",
	).Replace(string(text)))
	attached(t, digest, "out/multus-thick", prefix+".provenance.json", 2, "application/vnd.in-toto+json")
}

// TestI4_ImageProvenanceOfOwnBase: the same build says the same, and a base is among what
// it was built from.
func TestI4_ImageProvenanceOfOwnBase(t *testing.T) {
	checkout(t)
	own, err := layout.Write("base", empty.Index)
	must(t, err)
	image := hardened(t, runtime.GOARCH)
	must(t, own.AppendImage(image))
	digest, err := image.Digest()
	must(t, err)
	name := "out/multus-thin_linux-" + runtime.GOARCH + ".provenance.json"
	var texts [2]string
	for i := range texts {
		build(t, "-base", "base")
		text, err := os.ReadFile(name)
		must(t, err)
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("one build says\n%s\nand another\n%s", texts[0], texts[1])
	}
	var s statement
	must(t, json.Unmarshal([]byte(texts[0]), &s))
	got := fmt.Sprint(s.Predicate.BuildDefinition.ResolvedDependencies)
	want := fmt.Sprint([]artifact{
		{URI: "git+" + source, Digest: map[string]string{"gitCommit": "1a2b3c"}},
		{URI: "pkg:golang/stdlib@" + runtime.Version()[len("go"):]},
		{Name: "base", Digest: map[string]string{"sha256": digest.Hex}},
	})
	if got != want {
		t.Errorf("built from %s, want %s", got, want)
	}
}
