package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// TestI3_ImageSBOM: the whole document, but for checksums and Go's version, and that it
// is found from the image.
func TestI3_ImageSBOM(t *testing.T) {
	file, err := filepath.Abs("testdata/multus-thick.spdx.json")
	must(t, err)
	plain(t)
	image := open(t, "multus-thick")[0]
	digest, err := image.Digest()
	must(t, err)
	name := "out/multus-thick_linux-" + runtime.GOARCH + ".spdx.json"
	text, err := os.ReadFile(name)
	must(t, err)
	chosen, err := choose("")
	must(t, err)
	got := strings.NewReplacer(digest.Hex, "DIGEST", runtime.Version()[len("go"):], "GO", "arch="+chosen[0].debian, "arch=ARCH").Replace(string(text))
	golden(t, file, regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllString(got, `"SHA256"`))
	attached(t, digest, "out/multus-thick", name, 1, "application/spdx+json")
}

// attached checks that the layout leads from an image to a document about it, the nth.
func attached(t *testing.T, image v1.Hash, dir, file string, n int, media string) {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	list, err := all.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 3 || list.Manifests[n].ArtifactType != media {
		t.Fatalf("%s lists %+v", dir, list.Manifests)
	}
	referrer, err := all.Image(list.Manifests[n].Digest)
	must(t, err)
	manifest, err := referrer.Manifest()
	must(t, err)
	if manifest.Subject == nil || manifest.Subject.Digest != image || manifest.ArtifactType != media {
		t.Errorf("the referrer is %+v, want the subject %s", manifest, image)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	stored, err := os.ReadFile(dir + "/blobs/sha256/" + manifest.Layers[0].Digest.Hex)
	must(t, err)
	if string(stored) != string(text) {
		t.Errorf("the layout's document is not %s", file)
	}
}

// TestI3_ImageSBOMNamesTheBase: thin has no package of Debian's, its debug variant
// has, and a base of the user's own is named by digest.
func TestI3_ImageSBOMNamesTheBase(t *testing.T) {
	plain(t)
	below(t, "busybox-static 1:1-2", "", "busybox-static 1:1-2")
	checkout(t)
	own, err := layout.Write("base", empty.Index)
	must(t, err)
	image := hardened(t, runtime.GOARCH)
	must(t, own.AppendImage(image))
	digest, err := image.Digest()
	must(t, err)
	build(t, "-base", "base")
	named := "base " + digest.String()
	below(t, named, named, "busybox-static 1:1-2 "+named)
}

// below compares what the SBOMs say lies below Multus.
func below(t *testing.T, thick, thin, thinDebug string) {
	t.Helper()
	for name, want := range map[string]string{"thick": thick, "thin": thin, "thin-debug": thinDebug} {
		text, err := os.ReadFile("out/multus-" + name + "_linux-" + runtime.GOARCH + ".spdx.json")
		must(t, err)
		var s sbom
		must(t, json.Unmarshal(text, &s))
		var got []string
		for _, p := range s.Packages {
			if p.Name == "busybox-static" || p.Name == "base" {
				got = append(got, p.Name+" "+p.VersionInfo)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is said to be on %q, want %q", name, got, want)
		}
	}
}
