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
	return program + ": " + Get().String()
}

// Build is what is known of a build. No member but Release is ever empty.
type Build struct{ Version, Commit, Tree, Release, Date string }

// Get is this program's.
func Get() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	injected := Build{version, commit, gitTreeState, releaseStatus, date}
	return injected.or(info)
}

// or fills what is empty from Go's build information.
func (b Build) or(info *debug.BuildInfo) Build {
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	tree := map[string]string{"true": "dirty", "false": "clean"}[vcs["vcs.modified"]]
	const unknown = "unknown"
	return Build{
		Version: cmp.Or(b.Version, info.Main.Version, unknown),
		Commit:  cmp.Or(b.Commit, vcs["vcs.revision"], unknown),
		Tree:    cmp.Or(b.Tree, tree, unknown),
		Release: b.Release,
		Date:    cmp.Or(b.Date, vcs["vcs.time"], unknown),
	}
}

func (b Build) String() string {
	released := ""
	if b.Release == "released" {
		released = ",released"
	}
	return fmt.Sprintf("version:%s(%s%s), commit:%s, date:%s", b.Version, b.Tree, released, b.Commit, b.Date)
}
