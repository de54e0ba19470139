package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A platform is one that images are built for.
type platform struct {
	v1.Platform
	debian string   // Debian's name for the architecture
	env    []string // what go build is told; fixed, so that the builder's own settings do not show
}

// platforms are those that Multus is released for (contract 1.1).
func platforms() []platform {
	linux := func(arch, variant string) v1.Platform {
		return v1.Platform{OS: "linux", Architecture: arch, Variant: variant}
	}
	return []platform{
		{linux("amd64", ""), "amd64", []string{"GOARCH=amd64", "GOAMD64=v1"}},
		{linux("arm64", ""), "arm64", []string{"GOARCH=arm64", "GOARM64=v8.0"}},
		{linux("arm", "v7"), "armhf", []string{"GOARCH=arm", "GOARM=7"}},
		{linux("ppc64le", ""), "ppc64el", []string{"GOARCH=ppc64le", "GOPPC64=power8"}},
		{linux("s390x", ""), "s390x", []string{"GOARCH=s390x"}},
	}
}

// choose reads a comma-separated list of platforms; "" is this machine's, "all" is all.
func choose(list string) ([]platform, error) {
	var chosen []platform
	var known []string
	wanted := "," + list + ","
	for _, p := range platforms() {
		known = append(known, p.String())
		if list == "all" || list == "" && p.Architecture == runtime.GOARCH || strings.Contains(wanted, ","+p.String()+",") {
			chosen = append(chosen, p)
			wanted = strings.Replace(wanted, ","+p.String()+",", ",", 1)
		}
	}
	if list != "" && list != "all" && wanted != "," || len(chosen) == 0 {
		return nil, fmt.Errorf("platforms %q: want \"all\", or some of %s", list, strings.Join(known, ","))
	}
	return chosen, nil
}

// folder is the platform's name in file names.
func (p platform) folder() string { return strings.ReplaceAll(p.String(), "/", "-") }

// compile builds the programs of the tree root, and the thin image's cat, into dir.
func (p platform) compile(ctx context.Context, goCommand, root, dir, ldflags string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, build := range []struct{ in, packages, ldflags string }{
		{root, "./cmd/...", ldflags},
		{filepath.Join(root, "tools/image"), "./cat", "-s -w"},
	} {
		command := exec.CommandContext(ctx, goCommand, "build", "-trimpath", "-buildvcs=false", "-ldflags", build.ldflags, "-o", dir+"/", build.packages)
		command.Dir = build.in
		command.Env = append(append(command.Environ(), "CGO_ENABLED=0", "GOOS=linux"), p.env...)
		command.Stderr = os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s for %s: %w", build.packages, p, err)
		}
	}
	return nil
}
