package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// hardened is an image of a user's own: another user, another folder, a command.
func hardened(t *testing.T, arch string) v1.Image {
	t.Helper()
	image, err := random.Image(100, 2)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		User: "65532", WorkingDir: "/home/nonroot", Cmd: []string{"/bin/bash"}, Entrypoint: []string{"/init"},
		Env:    []string{"PATH=/opt/bin", "SSL_CERT_FILE=/etc/ssl/cert.pem"},
		Labels: map[string]string{"vendor": "example", "org.opencontainers.image.title": "base"},
	}
	image, err = mutate.ConfigFile(image, config)
	must(t, err)
	return image
}

// TestI3_ImageOnOwnBase: on a base of the user's own there is one layer more, with
// Multus and nothing else, and the base's settings stay where they are not Multus's.
func TestI3_ImageOnOwnBase(t *testing.T) {
	checkout(t)
	below := hardened(t, runtime.GOARCH)
	digest, err := below.Digest()
	must(t, err)
	own, err := layout.Write("base", empty.Index)
	must(t, err)
	must(t, own.AppendImage(below))
	build(t, "-base", "base")
	for flavor, entrypoint := range map[string]string{"thick": "/" + binDir + "/multus-daemon", "thin": "/thin_entrypoint"} {
		image := open(t, "multus-"+flavor)[0]
		want := v1.Config{
			Entrypoint: []string{entrypoint},
			User:       "0:0",
			WorkingDir: "/",
			Env:        []string{"PATH=/opt/bin:/usr/src/multus-cni/bin:/busybox", "SSL_CERT_FILE=/etc/ssl/cert.pem"},
			Labels: map[string]string{
				"vendor":                               "example",
				"org.opencontainers.image.title":       "multus-" + flavor,
				"org.opencontainers.image.source":      source,
				"org.opencontainers.image.version":     "v5.0.0",
				"org.opencontainers.image.revision":    "1a2b3c",
				"org.opencontainers.image.created":     "2026-12-02T01:00:00+01:00",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.base.digest": digest.String(),
			},
		}
		config, err := image.ConfigFile()
		must(t, err)
		if diff := cmp.Diff(want, config.Config); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flavor, diff)
		}
		onTop(t, below, image)
	}
}

// TestI3_ImageBaseFromAnywhere: the same base is found in a registry, in a layout, one
// image or one of an index's, beside an SBOM of its own, and in an archive.
func TestI3_ImageBaseFromAnywhere(t *testing.T) {
	t.Chdir(t.TempDir())
	want := hardened(t, "arm64")
	platform := v1.Platform{OS: "linux", Architecture: "arm64"}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: hardened(t, "amd64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: want, Descriptor: v1.Descriptor{Platform: &platform}})
	one, err := layout.Write("one", empty.Index)
	must(t, err)
	must(t, one.AppendImage(want))
	must(t, archive("one", "one.tar", time.Unix(0, 0)))
	many, err := layout.Write("many", empty.Index)
	must(t, err)
	must(t, many.AppendIndex(index))
	sbom, err := writeBlob(many, "application/vnd.oci.image.manifest.v1+json", []byte("{}"))
	must(t, err)
	sbom.ArtifactType = "application/spdx+json"
	must(t, many.AppendDescriptor(sbom))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for tag, push := range map[string]func(name.Reference) error{
		"one":  func(to name.Reference) error { return remote.Write(to, want) },
		"many": func(to name.Reference) error { return remote.WriteIndex(to, index) },
	} {
		to, err := name.ParseReference(host + "/hardened:" + tag)
		must(t, err)
		must(t, push(to))
	}
	for given, named := range map[string]bool{"one": false, "one.tar": false, "many": false, host + "/hardened:one": true, host + "/hardened:many": true} {
		b := base{name: given}
		must(t, b.open(t.Context(), t.TempDir()))
		got, err := b.platform(platform)
		must(t, err)
		if !same(t, got, want) || b.named != named {
			t.Errorf("%s is another image, or named is %v", given, b.named)
		}
	}
}

func same(t *testing.T, a, b v1.Image) bool {
	t.Helper()
	one, err := a.Digest()
	must(t, err)
	other, err := b.Digest()
	must(t, err)
	return one == other
}

// onTop checks that image is below with one layer more, in which nothing lies outside
// our own folder and names in /.
func onTop(t *testing.T, below, image v1.Image) {
	t.Helper()
	under, err := below.Manifest()
	must(t, err)
	over, err := image.Manifest()
	must(t, err)
	if diff := cmp.Diff(under.Layers, over.Layers[:len(over.Layers)-1]); diff != "" {
		t.Errorf("the base's layers (-want +got):\n%s", diff)
	}
	layers, err := image.Layers()
	must(t, err)
	for line := range strings.Lines(list(t, layers[len(layers)-1])) {
		path := strings.Fields(line)[3]
		ours := strings.HasPrefix(path, "usr/src/multus-cni/") || !strings.Contains(path, "/")
		if !ours && path != "usr/" && path != "usr/src/" {
			t.Errorf("%s is not ours", path)
		}
	}
}

// TestI3_ImageBaseFits: a base that is no image, or is for other platforms, is refused by name.
func TestI3_ImageBaseFits(t *testing.T) {
	checkout(t)
	for name, image := range map[string]v1.Image{"single": hardened(t, "mips")} {
		own, err := layout.Write(name, empty.Index)
		must(t, err)
		must(t, own.AppendImage(image))
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: hardened(t, "mips"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "mips"}}},
		mutate.IndexAddendum{Add: hardened(t, "sparc"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "sparc"}}})
	many, err := layout.Write("many", empty.Index)
	must(t, err)
	must(t, many.AppendIndex(index))
	must(t, os.Mkdir("nothing", 0o755))
	for given, want := range map[string]string{
		"single":  `base "single" is for linux/mips, not for linux/` + runtime.GOARCH,
		"many":    `base "many" has no image for linux/` + runtime.GOARCH + `, only for linux/mips, linux/sparc`,
		"nothing": `base "nothing", which should be an OCI layout, an OCI archive or an image's reference: `,
		"No/Ref":  `base "No/Ref", which should be an OCI layout, an OCI archive or an image's reference: `,
	} {
		_, err := mkimage(t, "-base", given)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", given, err, want)
		}
	}
}

// content is one file of a layer.
func content(t *testing.T, layer v1.Layer, path string) string {
	t.Helper()
	all, err := layer.Uncompressed()
	must(t, err)
	defer all.Close()
	archive := tar.NewReader(all)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("no %s in the layer", path)
		}
		must(t, err)
		if h.Name == path {
			text, err := io.ReadAll(archive)
			must(t, err)
			return string(text)
		}
	}
}
