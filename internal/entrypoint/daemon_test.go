package entrypoint

import (
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/config"
)

// TestI4_FlagsUnderTheDaemonsFile: the flags of a thin installation, given to the daemon.
func TestI4_FlagsUnderTheDaemonsFile(t *testing.T) {
	taken := func(flag, key string) config.Warning {
		return config.Warning(`flag --` + flag + ` is taken as the key "` + key + `": put it into the file`)
	}
	for name, tt := range map[string]struct {
		args  []string
		file  string
		want  string
		notes []config.Warning
	}{
		"none": {nil, `{ "logLevel": "debug" }`, `{ "logLevel": "debug" }`, nil},
		"EKS, v3 thin": {
			[]string{"--multus-conf-file=auto", "--cni-version=0.4.0", "--multus-master-cni-file-name=10-aws.conflist", "--multus-log-level=error", "-multus-log-file", "/log"},
			`{"socketDir":"/host/run/multus"}`,
			`{"cniVersion":"0.4.0","multusConfigFile":"auto","logFile":"/log","logLevel":"error","multusMasterCNI":"10-aws.conflist","socketDir":"/host/run/multus"}`,
			[]config.Warning{
				taken("cni-version", "cniVersion"), taken("multus-conf-file", "multusConfigFile"), taken("multus-log-file", "logFile"),
				taken("multus-log-level", "logLevel"), taken("multus-master-cni-file-name", "multusMasterCNI"),
			},
		},
		"the file wins": {
			[]string{"--namespace-isolation=false", "--multus-log-level=debug", "--cni-version=0.4.0"},
			`{"NamespaceIsolation":true,"logLevel":"error","cniVersion":null}`,
			`{"cniVersion":"0.4.0","NamespaceIsolation":true,"logLevel":"error"}`,
			[]config.Warning{
				taken("cni-version", "cniVersion"),
				`flag --multus-log-level has no effect: the file sets the key "logLevel"`,
				`flag --namespace-isolation has no effect: the file sets the key "namespaceIsolation"`,
			},
		},
		"bools": {
			[]string{"-namespace-isolation", "--multus-log-to-stderr=true", "-cleanup-config-on-exit=false"},
			`{}`,
			`{"cleanupConfigOnExit":false,"logToStderr":true,"namespaceIsolation":true}`,
			[]config.Warning{taken("cleanup-config-on-exit", "cleanupConfigOnExit"), taken("multus-log-to-stderr", "logToStderr"), taken("namespace-isolation", "namespaceIsolation")},
		},
		"without a place": {
			[]string{"--cni-bin-dir=/b", "--skip-config-watch", "--rename-conf-file"},
			`{}`, `{}`,
			[]config.Warning{
				"flag --cni-bin-dir has no effect: install_multus copies the plugins",
				"flag --rename-conf-file has no effect: the primary network's file is read for each pod, and keeps its name",
				"flag --skip-config-watch has no effect: the daemon follows the primary network in any case",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			flags, set := daemonFlags()
			if err := set.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			got, notes, err := flags.Under([]byte(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.notes, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func daemonFlags() (*Flags, *flag.FlagSet) {
	flags := NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags.AddTo(set)
	return flags, set
}

func TestI4_FlagsRefuseWhatTheyCannotTake(t *testing.T) {
	_, set := daemonFlags()
	if err := set.Parse([]string{"--namespace-isolation=often"}); err == nil {
		t.Error("a boolean flag took a word")
	}
	flags, _ := daemonFlags()
	if _, _, err := flags.Under([]byte(`{`)); err == nil {
		t.Error("a broken file was taken")
	}
}

// TestI4_EveryFlagHasAPlace: a flag has a key, or there is a reason why it has none; and
// the keys exist.
func TestI4_EveryFlagHasAPlace(t *testing.T) {
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Name] = true
	}
	flags, _ := daemonFlags()
	var defined []string
	flags.set.VisitAll(func(f *pflag.Flag) {
		defined = append(defined, f.Name)
		to := places[f.Name]
		if (to.key == "") == (to.why == "") {
			t.Errorf("--%s has the key %q and the reason %q: want one of them", f.Name, to.key, to.why)
		}
		if to.key != "" && !known[to.key] {
			t.Errorf("--%s: there is no key %q", f.Name, to.key)
		}
	})
	for name := range places {
		if !slices.Contains(defined, name) {
			t.Errorf("there is no flag --%s", name)
		}
	}
}

// TestI4_GuideNamesEveryFlag with its key.
func TestI4_GuideNamesEveryFlag(t *testing.T) {
	guide, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range places {
		found := false
		for line := range strings.Lines(string(guide)) {
			found = found || strings.HasPrefix(line, "| ") && strings.Contains(line, "`--"+name+"`") && (to.key == "" || strings.Contains(line, "`"+to.key+"`"))
		}
		if !found {
			t.Errorf("docs/configure.md has no row for --%s with the key %q", name, to.key)
		}
	}
}
