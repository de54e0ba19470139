package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// scratch asks for our own base, which needs no other image. It is also what a
// Dockerfile calls the empty image.
const scratch = "scratch"

// A base is the image below ours: scratch, or one of the user's own.
type base struct {
	name  string // as the user gave it
	named bool   // it is a reference that others can pull, not a path of this machine
	index v1.ImageIndex
	image v1.Image // where it is for one platform only
}

// open finds the image by its reference, or in the file system: an OCI layout, or an
// OCI archive, which is unpacked below dir.
func (b *base) open(ctx context.Context, dir string) error {
	if b.name == scratch {
		b.named = true
		return nil
	}
	info, err := os.Stat(b.name)
	switch {
	case err == nil && info.IsDir():
		err = b.openLayout(b.name)
	case err == nil:
		err = b.openArchive(ctx, filepath.Join(dir, "base"))
	case errors.Is(err, os.ErrNotExist):
		err = b.pull(ctx)
	}
	if err != nil {
		return fmt.Errorf("base %q, which should be an OCI layout, an OCI archive or an image's reference: %w", b.name, err)
	}
	return nil
}

func (b *base) openArchive(ctx context.Context, dir string) error {
	err := untar(ctx, dir, func(w io.Writer) error {
		archive, err := os.Open(b.name)
		if err != nil {
			return err
		}
		defer archive.Close()
		_, err = io.Copy(w, archive)
		return err
	})
	if err != nil {
		return err
	}
	return b.openLayout(dir)
}

// openLayout takes the layout's one image. What is about another image (an SBOM, a
// signature) has a type of its own, and does not count.
func (b *base) openLayout(dir string) error {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	list, err := all.IndexManifest()
	if err != nil {
		return err
	}
	var images []v1.Descriptor
	for _, m := range list.Manifests {
		if m.ArtifactType == "" || types.MediaType(m.ArtifactType).IsConfig() {
			images = append(images, m)
		}
	}
	if len(images) != 1 {
		return fmt.Errorf("%d images are in it; want one", len(images))
	}
	if images[0].MediaType.IsIndex() {
		b.index, err = all.ImageIndex(images[0].Digest)
	} else {
		b.image, err = all.Image(images[0].Digest)
	}
	return err
}

func (b *base) pull(ctx context.Context) error {
	ref, err := name.ParseReference(b.name)
	if err != nil {
		return err
	}
	found, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return err
	}
	b.named = true
	if found.MediaType.IsIndex() {
		b.index, err = found.ImageIndex()
	} else {
		b.image, err = found.Image()
	}
	return err
}

// platform is the base's image for p.
func (b *base) platform(p v1.Platform) (v1.Image, error) {
	switch {
	case b.index != nil:
		return b.choose(p)
	case b.image == nil:
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	config, err := b.image.ConfigFile()
	if err != nil {
		return nil, err
	}
	if !fits(config.Platform(), p) {
		return nil, fmt.Errorf("base %q is for %s, not for %s", b.name, config.Platform(), p)
	}
	return b.image, nil
}

func (b *base) choose(p v1.Platform) (v1.Image, error) {
	list, err := b.index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var has []string
	for _, m := range list.Manifests {
		if fits(m.Platform, p) {
			return b.index.Image(m.Digest)
		}
		if m.Platform != nil {
			has = append(has, m.Platform.String())
		}
	}
	return nil, fmt.Errorf("base %q has no image for %s, only for %s", b.name, p, strings.Join(has, ", "))
}

// fits leaves out OS versions, and the variant where it is the only one there is.
func fits(have *v1.Platform, want v1.Platform) bool {
	return have != nil && have.OS == want.OS && have.Architecture == want.Architecture &&
		(want.Variant == "" || have.Variant == want.Variant)
}

// layerMedia is the type of layer that goes with the layers of an image.
func layerMedia(image v1.Image) (types.MediaType, error) {
	media, err := image.MediaType()
	if err != nil {
		return "", err
	}
	if media == types.DockerManifestSchema2 {
		return types.DockerLayer, nil
	}
	return types.OCILayer, nil
}
