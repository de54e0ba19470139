// Package version tells which build this is. It is the one place that the build's
// -ldflags -X reach; every binary prints from here.
package version

import (
	"cmp"
	"fmt"
	"runtime/debug"
)

// Set by the build: -ldflags "-X github.com/multus-thick/multus/internal/version.version=v5.0.0 …".
// What it leaves empty comes from Go's own build information.
var (
	version       string
	commit        string
	gitTreeState  string // "clean" or "dirty"
	releaseStatus string // "released" for a release
	date          string // RFC 3339
)

// String is what the program prints for its version (contract 1.1):
// "multus: version:v5.0.0(clean,released), commit:1a2b3c, date:2026-12-02T00:00:00Z".
// No part is ever empty.
func String(program string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	injected := build{version, commit, gitTreeState, releaseStatus, date}
	return program + ": " + injected.or(info).String()
}

// build is what is known of a build.
type build struct{ version, commit, tree, release, date string }

// or fills what is empty from Go's build information.
func (b build) or(info *debug.BuildInfo) build {
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	tree := map[string]string{"true": "dirty", "false": "clean"}[vcs["vcs.modified"]]
	const unknown = "unknown"
	return build{
		version: cmp.Or(b.version, info.Main.Version, unknown),
		commit:  cmp.Or(b.commit, vcs["vcs.revision"], unknown),
		tree:    cmp.Or(b.tree, tree, unknown),
		release: b.release,
		date:    cmp.Or(b.date, vcs["vcs.time"], unknown),
	}
}

func (b build) String() string {
	released := ""
	if b.release == "released" {
		released = ",released"
	}
	return fmt.Sprintf("version:%s(%s%s), commit:%s, date:%s", b.version, b.tree, released, b.commit, b.date)
}
