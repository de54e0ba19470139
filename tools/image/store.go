package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// tag is the variant's.
func (b *builder) tag(v variant) string { return b.version + v.flavor.suffix + debugSuffix(v.debug) }

// store writes the variant NAME for its platforms: the archive NAME.tar, which holds
// the image alone, and the layout NAME, which also holds an SBOM and the provenance for
// each platform, as referrers. Both lie beside them too.
func (b *builder) store(name string, variants []variant, stdout io.Writer) error {
	image, err := index(variants)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	tag := b.tag(variants[0])
	dir := filepath.Join(b.out, name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendIndex(image, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          b.repo + ":" + tag,
		"org.opencontainers.image.ref.name": tag,
	})); err != nil {
		return err
	}
	if err := archive(dir, dir+".tar", b.created); err != nil {
		return err
	}
	for _, v := range variants {
		if err := b.describe(to, v); err != nil {
			return fmt.Errorf("SBOM and provenance for %s: %w", v.platform, err)
		}
	}
	fmt.Fprintf(stdout, "%s.tar %s:%s %s\n", dir, b.repo, tag, digest)
	return nil
}

// archive writes the files below dir to an OCI archive.
func archive(dir, file string, date time.Time) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	to := tar.NewWriter(out)
	// WalkDir's order is the names'.
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return entry{path: filepath.ToSlash(name), mode: 0o644, from: path}.write(to, date)
	})
	return cmp.Or(err, to.Close(), out.Close())
}

// describe writes what v consists of, and how it was built.
func (b *builder) describe(to layout.Path, v variant) error {
	subject, err := partial.Descriptor(v.image)
	if err != nil {
		return err
	}
	subject.ArtifactType = "" // it is an image
	document, err := b.sbom(v, subject.Digest)
	if err != nil {
		return err
	}
	file := fmt.Sprintf("%s_%s", v.name(), v.platform.folder())
	sbom, err := b.attach(to, subject, file+".spdx.json", "application/spdx+json", document)
	if err != nil {
		return err
	}
	document, err = b.provenance(v, subject.Digest, artifact{Name: file + ".spdx.json", Digest: sha256of(sbom)})
	if err != nil {
		return err
	}
	_, err = b.attach(to, subject, file+".provenance.json", "application/vnd.in-toto+json", document)
	return err
}

// attach writes a document beside the layout, and into it as a manifest with a
// subject (OCI image specification 1.1, "Guidelines for artifact usage"). It returns the
// document's digest.
func (b *builder) attach(to layout.Path, subject *v1.Descriptor, file string, media types.MediaType, document []byte) (v1.Hash, error) {
	if err := os.WriteFile(filepath.Join(b.out, file), document, 0o644); err != nil {
		return v1.Hash{}, err
	}
	content, err := writeBlob(to, media, document)
	if err != nil {
		return v1.Hash{}, err
	}
	content.Annotations = map[string]string{"org.opencontainers.image.title": file}
	config, err := writeBlob(to, "application/vnd.oci.empty.v1+json", []byte("{}"))
	if err != nil {
		return v1.Hash{}, err
	}
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  string(content.MediaType),
		Config:        config,
		Layers:        []v1.Descriptor{content},
		Subject:       subject,
	})
	if err != nil {
		return v1.Hash{}, err
	}
	referrer, err := writeBlob(to, types.OCIManifestSchema1, raw)
	if err != nil {
		return v1.Hash{}, err
	}
	referrer.ArtifactType = string(content.MediaType)
	return content.Digest, to.AppendDescriptor(referrer)
}

func writeBlob(to layout.Path, media types.MediaType, content []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: media, Digest: digest, Size: size}, to.WriteBlob(digest, io.NopCloser(bytes.NewReader(content)))
}
