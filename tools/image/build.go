package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"
)

// source is where the code is (label org.opencontainers.image.source).
const source = "https://github.com/multus-thick/multus"

// A builder builds all images once.
type builder struct {
	root      string // the checkout
	out       string // where the results go
	goCommand string
	ldflags   string
	repo      string // the images' name without the tag
	version   string
	commit    string
	date      string // of the commit, RFC 3339
	created   time.Time
	platforms []platform
	mirror    string // tried before the recorded ones, if not empty
	lock      lock
	base      base
}

// A variant is one image for one platform, and the programs in it.
type variant struct {
	flavor   flavor
	platform platform
	built    string
	debug    bool
	image    v1.Image
}

// name is the variant's in file names: "multus-thick-debug".
func (v variant) name() string { return "multus-" + v.flavor.name + debugSuffix(v.debug) }

func debugSuffix(debug bool) string {
	if debug {
		return "-debug"
	}
	return ""
}

// work is the folder of everything that is only needed during the build.
func (b *builder) work() string { return filepath.Join(b.out, "build") }

// prepare compiles the programs for p and unpacks its recorded package; both are in
// the folder that it returns.
func (b *builder) prepare(ctx context.Context, p platform) (string, error) {
	built := filepath.Join(b.work(), p.folder())
	if err := os.MkdirAll(built, 0o755); err != nil {
		return "", err
	}
	recorded, ok := b.lock.packages[p.debian]
	if !ok {
		return "", fmt.Errorf("image/debian.lock records no package for %s (%s)", p, p.debian)
	}
	mirrors := b.lock.mirrors
	if b.mirror != "" {
		mirrors = append([]string{b.mirror}, mirrors...)
	}
	file, err := recorded.file(ctx, mirrors, filepath.Join(b.out, "debs"))
	if err != nil {
		return "", err
	}
	if err := unpack(ctx, file, filepath.Join(built, debDir)); err != nil {
		return "", err
	}
	return built, p.compile(ctx, b.goCommand, b.root, built, b.ldflags)
}

// contents are the entries of a flavor, layer by layer: those of our own base, where
// it is used, Multus, and what a debug variant has more.
func (b *builder) contents(f flavor, built string) (lower, ours, top []entry, err error) {
	if b.base.name == scratch {
		lower = f.base()
	}
	ours, err = f.ours(b.root, built)
	return lower, ours, debugTools(built, b.lock.applets), err
}

// images builds every variant for the platform p.
func (b *builder) images(ctx context.Context, p platform) ([]variant, error) {
	built, err := b.prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	flavors := flavors(built)
	all := make([]variant, 2*len(flavors))
	var group errgroup.Group
	for i, f := range flavors {
		group.Go(func() error {
			plain, debug, err := b.flavor(f, p, built)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", f.name, p, err)
			}
			all[2*i], all[2*i+1] = variant{f, p, built, false, plain}, variant{f, p, built, true, debug}
			return nil
		})
	}
	return all, group.Wait()
}

// flavor builds an image and its debug variant, which is the same with one layer more.
func (b *builder) flavor(f flavor, p platform, built string) (plain, debug v1.Image, err error) {
	below, err := b.base.platform(p.Platform)
	if err != nil {
		return nil, nil, err
	}
	plain, err = b.configure(below, f, p)
	if err != nil {
		return nil, nil, err
	}
	media, err := layerMedia(below)
	if err != nil {
		return nil, nil, err
	}
	add := func(image v1.Image, what string, entries []entry) (v1.Image, error) {
		layer, err := writeLayer(filepath.Join(built, f.name+"-"+what+".tar.gz"), entries, b.created, media)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: b.created}, CreatedBy: "mkimage", Comment: what}
		return mutate.Append(image, mutate.Addendum{Layer: layer, History: history, MediaType: media})
	}
	lower, ours, top, err := b.contents(f, built)
	if err != nil {
		return nil, nil, err
	}
	if lower != nil {
		if plain, err = add(plain, "base", lower); err != nil {
			return nil, nil, err
		}
	}
	if plain, err = add(plain, "multus", ours); err != nil {
		return nil, nil, err
	}
	debug, err = add(plain, "debug", top)
	return plain, debug, err
}

// configure makes an image run Multus as root, whatever a base says of users,
// folders and commands: the DaemonSets that exist name at most a command.
func (b *builder) configure(below v1.Image, f flavor, p platform) (v1.Image, error) {
	config, err := below.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Architecture, p.Variant
	config.Created = v1.Time{Time: b.created}
	config.Config.Entrypoint, config.Config.Cmd = []string{f.entrypoint}, nil
	config.Config.User, config.Config.WorkingDir = "0:0", "/"
	path := slices.IndexFunc(config.Config.Env, func(pair string) bool { return strings.HasPrefix(pair, "PATH=") })
	if path < 0 {
		path = len(config.Config.Env)
		config.Config.Env = append(config.Config.Env, "PATH="+usualPath)
	}
	config.Config.Env[path] += ourPath
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	labels, err := b.labels(below, f)
	if err != nil {
		return nil, err
	}
	for key, value := range labels {
		config.Config.Labels["org.opencontainers.image."+key] = value
	}
	return mutate.ConfigFile(below, config)
}

func (b *builder) labels(below v1.Image, f flavor) (map[string]string, error) {
	labels := map[string]string{
		"title":    "multus-" + f.name,
		"source":   source,
		"version":  b.version,
		"revision": b.commit,
		"created":  b.date,
		"licenses": "Apache-2.0",
	}
	if b.base.named {
		labels["base.name"] = b.base.name
	}
	if b.base.name != scratch {
		digest, err := below.Digest()
		if err != nil {
			return nil, err
		}
		labels["base.digest"] = digest.String()
	}
	return labels, nil
}

// index joins the platforms of one variant. It is an index for one platform too, so
// that names and commands are the same.
func index(variants []variant) (v1.ImageIndex, error) {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, v := range variants {
		desc, err := partial.Descriptor(v.image)
		if err != nil {
			return nil, err
		}
		desc.Platform = &v.platform.Platform
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: v.image, Descriptor: *desc})
	}
	return all, nil
}

// run builds the images and prints, for each, its archive, its name and its digest.
func (b *builder) run(ctx context.Context, stdout io.Writer) error {
	if err := b.base.open(ctx, b.work()); err != nil {
		return err
	}
	variants := map[string][]variant{}
	for _, p := range b.platforms {
		images, err := b.images(ctx, p)
		if err != nil {
			return err
		}
		for _, v := range images {
			variants[v.name()] = append(variants[v.name()], v)
		}
	}
	for _, name := range sorted(variants) {
		if err := b.store(name, variants[name], stdout); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// rootfs writes the files of each variant below dir, for the Dockerfiles.
func (b *builder) rootfs(ctx context.Context, dir string) error {
	if len(b.platforms) != 1 {
		return fmt.Errorf("a root file system is for one platform, not for %d", len(b.platforms))
	}
	built, err := b.prepare(ctx, b.platforms[0])
	if err != nil {
		return err
	}
	for _, f := range flavors(built) {
		lower, ours, top, err := b.contents(f, built)
		if err != nil {
			return err
		}
		for _, debug := range []bool{false, true} {
			entries := slices.Concat(lower, ours)
			if debug {
				entries = append(entries, top...)
			}
			write := func(w io.Writer) error { return writeTar(w, entries, b.created) }
			if err := untar(ctx, filepath.Join(dir, f.name+debugSuffix(debug)), write); err != nil {
				return err
			}
		}
	}
	return nil
}
