package main

import (
	"debug/elf"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestI3_ImageContent: every path of every image, layer by layer, as manifests of
// Multus v4 expect them (contract 1.1).
func TestI3_ImageContent(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	must(t, err)
	plain(t)
	for _, name := range []string{"multus-thick", "multus-thick-debug", "multus-thin", "multus-thin-debug"} {
		layers, err := open(t, name)[0].Layers()
		must(t, err)
		var got strings.Builder
		for _, layer := range layers {
			got.WriteString("== layer\n" + list(t, layer))
		}
		golden(t, filepath.Join(dir, name+".txt"), got.String())
	}
}

// golden compares with a file, which -rewrite writes.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", filepath.Base(file), diff)
	}
}

// TestI3_ImageRunsWhatManifestsCall: the commands of the containers, init containers
// and probes that users have, run in each image's files.
func TestI3_ImageRunsWhatManifestsCall(t *testing.T) {
	dir := checkout(t)
	build(t, "-rootfs", "rootfs")
	const bin = "/usr/src/multus-cni/bin/"
	for _, c := range []struct{ image, command, runs string }{
		{"thick", bin + "multus-daemon", "multus-daemon"},
		{"thick", bin + "multus-shim", "multus-shim"},
		{"thick", bin + "install_multus", "install_multus"},
		{"thick", bin + "kubeconfig_generator", "kubeconfig_generator"},
		{"thick", "/install_multus", "install_multus"},
		{"thick", "/cert-approver", "cert-approver"},
		{"thick", "cp", "busybox"},
		{"thick", "cat", "busybox"},
		{"thick", "sh", "busybox"},
		{"thick", "/bin/sh", "busybox"},
		{"thick", "multusctl", "multusctl"},
		{"thick", "wget", ""},
		{"thin", "/thin_entrypoint", "thin_entrypoint"},
		{"thin", "/entrypoint.sh", "thin_entrypoint"},
		{"thin", bin + "multus", "multus"},
		{"thin", bin + "passthru", "passthru"},
		{"thin", bin + "thin_entrypoint", "thin_entrypoint"},
		{"thin", bin + "install_multus", "install_multus"},
		{"thin", "/install_multus", "install_multus"},
		{"thin", "/kubeconfig_generator", "kubeconfig_generator"},
		{"thin", "/cert-approver", "cert-approver"},
		{"thin", "cat", "cat"},
		{"thin", "/bin/cat", "cat"},
		{"thin", "sh", ""},
		{"thick-debug", "[", "busybox"},
		{"thick-debug", bin + "multus-daemon", "multus-daemon"},
		{"thin-debug", "sh", "busybox"},
		{"thin-debug", "cat", "cat"},
	} {
		if got := runIn(t, filepath.Join(dir, "rootfs", c.image), c.command); got != c.runs {
			t.Errorf("%s: %s runs %q, want %q", c.image, c.command, got, c.runs)
		}
	}
}

// runIn runs a command of a root file system as a runtime would find it, and gives
// what it prints: its own name, in our stubs.
func runIn(t *testing.T, root, name string) string {
	t.Helper()
	paths := []string{name}
	if !strings.HasPrefix(name, "/") {
		paths = nil
		for _, dir := range strings.Split(usualPath+ourPath, ":") {
			paths = append(paths, dir+"/"+name)
		}
	}
	for _, path := range paths {
		c := &exec.Cmd{Path: path, Args: []string{name}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
		out, err := c.Output()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		return strings.TrimSpace(string(out))
	}
	return ""
}

// TestI3_ImageSaysHowItRuns: the whole configuration of an image on our own base.
func TestI3_ImageSaysHowItRuns(t *testing.T) {
	plain(t)
	for name, entrypoint := range map[string]string{
		"multus-thick": "/usr/src/multus-cni/bin/multus-daemon", "multus-thick-debug": "/usr/src/multus-cni/bin/multus-daemon",
		"multus-thin": "/thin_entrypoint", "multus-thin-debug": "/thin_entrypoint",
	} {
		got, err := open(t, name)[0].ConfigFile()
		must(t, err)
		want := v1.Config{
			Entrypoint: []string{entrypoint},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/src/multus-cni/bin:/busybox"},
			User:       "0:0",
			WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":     strings.TrimSuffix(name, "-debug"),
				"org.opencontainers.image.source":    "https://github.com/multus-thick/multus",
				"org.opencontainers.image.version":   "v5.0.0",
				"org.opencontainers.image.revision":  "1a2b3c",
				"org.opencontainers.image.created":   "2026-12-02T01:00:00+01:00",
				"org.opencontainers.image.licenses":  "Apache-2.0",
				"org.opencontainers.image.base.name": "scratch",
			},
		}
		if diff := cmp.Diff(want, got.Config); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if created := got.Created.UTC().Format("2006-01-02T15:04:05Z"); created != "2026-12-02T00:00:00Z" {
			t.Errorf("%s: created %s", name, created)
		}
	}
}

// TestI3_ImageIsReproducible: two builds in different folders, under different
// settings of the builder's, give the same archives, byte for byte.
func TestI3_ImageIsReproducible(t *testing.T) {
	type result struct {
		said  string
		files map[string]string
	}
	once := func() result {
		dir := checkout(t)
		r := result{build(t, "-go", dir+"/go-builds-one"), map[string]string{}}
		names, err := filepath.Glob(filepath.Join(dir, "out/multus-*"))
		must(t, err)
		for _, name := range names {
			content, _ := os.ReadFile(name)
			r.files[filepath.Base(name)] = string(content)
		}
		return r
	}
	first := once()
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOARM64", "v8.1")
	t.Setenv("TZ", "Asia/Tokyo")
	defer syscall.Umask(syscall.Umask(0o077))
	second := once()
	if len(first.files) != 16 {
		t.Errorf("built %v, want an archive, a layout, an SBOM and the provenance of four images", sorted(first.files))
	}
	for name, content := range first.files {
		if second.files[name] != content {
			t.Errorf("%s differs from build to build", name)
		}
	}
	if first.said != second.said {
		t.Errorf("first build:\n%s second:\n%s", first.said, second.said)
	}
}

// TestI3_ImageForEveryPlatform: one index has all platforms, and each image programs
// for its own.
func TestI3_ImageForEveryPlatform(t *testing.T) {
	dir := checkout(t)
	build(t, "-platforms", "all", "-go", dir+"/go-builds-one")
	got := map[string]string{}
	for _, image := range open(t, "multus-thick") {
		config, err := image.ConfigFile()
		must(t, err)
		layers, err := image.Layers()
		must(t, err)
		got[config.Platform().String()] = machine(t, layers[1])
	}
	want := map[string]string{
		"linux/amd64":   "EM_X86_64 little",
		"linux/arm64":   "EM_AARCH64 little",
		"linux/arm/v7":  "EM_ARM little",
		"linux/ppc64le": "EM_PPC64 little",
		"linux/s390x":   "EM_S390 big",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// machine is what the layer's multus-daemon runs on.
func machine(t *testing.T, layer v1.Layer) string {
	t.Helper()
	program, err := elf.NewFile(strings.NewReader(content(t, layer, binDir+"/multus-daemon")))
	must(t, err)
	order := map[elf.Data]string{elf.ELFDATA2LSB: "little", elf.ELFDATA2MSB: "big"}
	return program.Machine.String() + " " + order[program.Data]
}

// TestI3_ImagePlatforms: what a list of platforms means.
func TestI3_ImagePlatforms(t *testing.T) {
	all := []string{"linux/amd64", "linux/arm64", "linux/arm/v7", "linux/ppc64le", "linux/s390x"}
	for given, want := range map[string][]string{
		"":                         {"linux/" + runtime.GOARCH},
		"all":                      all,
		"linux/arm/v7,linux/amd64": {"linux/amd64", "linux/arm/v7"},
	} {
		chosen, err := choose(given)
		must(t, err)
		var got []string
		for _, p := range chosen {
			got = append(got, p.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", given, got, want)
		}
	}
	for _, given := range []string{"linux/riscv64", "linux/arm", "linux/amd64,linux/amd65"} {
		_, err := choose(given)
		want := `platforms "` + given + `": want "all", or some of ` + strings.Join(all, ",")
		if err == nil || err.Error() != want {
			t.Errorf("%q gives %v, want %s", given, err, want)
		}
	}
}

// TestI3_ImageNames: names and tags are what a user looks for when the archive is imported.
func TestI3_ImageNames(t *testing.T) {
	plain(t)
	said, err := os.ReadFile("said")
	must(t, err)
	var got []string
	for line := range strings.Lines(string(said)) {
		words := strings.Fields(line)
		got = append(got, words[0]+" "+words[1])
	}
	want := []string{
		"out/multus-thick.tar localhost/multus-cni:v5.0.0-thick",
		"out/multus-thick-debug.tar localhost/multus-cni:v5.0.0-thick-debug",
		"out/multus-thin.tar localhost/multus-cni:v5.0.0",
		"out/multus-thin-debug.tar localhost/multus-cni:v5.0.0-debug",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	index, err := os.ReadFile("out/multus-thin/index.json")
	must(t, err)
	for _, annotation := range []string{
		`"io.containerd.image.name": "localhost/multus-cni:v5.0.0"`, `"org.opencontainers.image.ref.name": "v5.0.0"`,
	} {
		if !strings.Contains(string(index), annotation) {
			t.Errorf("index.json has no %s:\n%s", annotation, index)
		}
	}
}

// TestI3_ImageNeedsEveryProgram: an image is whole, or is not built; what an earlier
// build left behind does not count.
func TestI3_ImageNeedsEveryProgram(t *testing.T) {
	checkout(t)
	build(t, "-rootfs", "rootfs")
	must(t, os.RemoveAll("cmd/cert-approver"))
	_, err := mkimage(t, "-rootfs", "rootfs")
	want := "the thick image needs the program cert-approver, and ./cmd/... builds none of that name"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestI3_ImageRefusesHalfAnAnswer: what is missing or wrong among the arguments is named.
func TestI3_ImageRefusesHalfAnAnswer(t *testing.T) {
	checkout(t)
	for _, c := range []struct{ args, want string }{
		{"-date unknown", `the date of the commit (DATE=) should be as 2026-12-02T00:00:00Z: `},
		{"-version=", `no version is given (VERSION=): it should be as v5.0.0`},
		{"-version v5+1", `the images' name and version (IMAGE=, VERSION=): `},
		{"-platforms all -rootfs x", `a root file system is for one platform, not for 5`},
	} {
		_, err := mkimage(t, strings.Fields(c.args)...)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s gives %v, want %s", c.args, err, c.want)
		}
	}
}
