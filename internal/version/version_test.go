package version

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestC1_1VersionString(t *testing.T) {
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "1a2b"}, {Key: "vcs.time", Value: "2026-12-02T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	tests := map[string]struct {
		injected Build
		info     *debug.BuildInfo
		want     string
	}{
		"a release":     {Build{"v5.0.0", "9f8e", "clean", "released", "2026-01-01"}, info("(devel)", vcs...), "version:v5.0.0(clean,released), commit:9f8e, date:2026-01-01"},
		"no release":    {Build{"v5.0.0", "9f8e", "dirty", "unreleased", "2026-01-01"}, info(""), "version:v5.0.0(dirty), commit:9f8e, date:2026-01-01"},
		"go build":      {Build{}, info("v5.0.1-0.2026", vcs...), "version:v5.0.1-0.2026(dirty), commit:1a2b, date:2026-12-02T00:00:00Z"},
		"nothing known": {Build{}, info(""), "version:unknown(unknown), commit:unknown, date:unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.injected.or(tt.info).String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestC1_1VersionOfThisBuild(t *testing.T) {
	got := String("multus-daemon")
	if !regexp.MustCompile(`^multus-daemon: version:\S+\(\S+\), commit:\S+, date:\S+$`).MatchString(got) {
		t.Errorf("got %q", got)
	}
}
