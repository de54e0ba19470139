package confgen

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/plan"
)

const (
	main10  = `{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"bridge","capabilities":{"ips":true,"mac":false}},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	side20  = `{"cniVersion":"0.3.1","name":"side","type":"macvlan"}`
	nesting = `{"cniVersion":"1.0.0","name":"self","plugins":[{"type":"wrapper","delegate":{"list":[{"type":"multus-shim"}]}}]}`
)

func file(name, content string) File { return File{Name: name, Content: []byte(content)} }

func TestT6ChooseAmongFiles(t *testing.T) {
	const why = "the first valid configuration by name in /conf"
	type outcome struct {
		Name, Why string
		Skipped   []Skipped
	}
	unreadable := File{Name: "03-u.conf", Err: errors.New("permission denied")}
	tests := map[string]struct {
		pinned string
		files  []File
		want   outcome
	}{
		"the whole zoo": {
			files: []File{
				file("30-x.conf.cilium_bak", side20), file("20-b.conf", side20), file("10-a.conflist", main10), file("00-multus.conf", side20),
				file("00-multus.conflist", side20), file("08-self.conflist", nesting), file("04-j.json", side20), file(".02-z.conf.swp", side20),
				file("01-e.conf", " \n"), file("02-h.conf", side20[:20]), unreadable, file("05-n.conf", `{"type":"bridge"}`),
			},
			want: outcome{"10-a.conflist", why, []Skipped{
				{"01-e.conf", "is empty"},
				{"02-h.conf", "is not valid JSON"},
				{"03-u.conf", "cannot be read: permission denied"},
				{"05-n.conf", `has no key "name", which CNI requires`},
				{"08-self.conflist", "holds Multus itself"},
			}},
		},
		"nothing":   {want: outcome{Why: "waiting for a primary network's configuration (.conf or .conflist) in /conf"}},
		"own types": {files: []File{file("1.conf", `{"name":"n","type":"multus"}`), file("2.conf", `{"name":"n","type":"multus-cni"}`)}, want: outcome{"", "waiting for a primary network's configuration (.conf or .conflist) in /conf", []Skipped{{"1.conf", "holds Multus itself"}, {"2.conf", "holds Multus itself"}}}},
		"plugins of a folder": {
			files: []File{{Name: "1.conflist", Content: []byte(`{"cniVersion":"1.1.0","name":"n","loadOnlyInlinedPlugins":false}`), Chained: []plan.File{{Path: "/conf/n/1.conf", Content: []byte(`{"type":"bridge"}`)}}}},
			want:  outcome{Name: "1.conflist", Why: why},
		},
		"Multus in a folder": {
			files: []File{{Name: "1.conflist", Content: []byte(`{"cniVersion":"1.1.0","name":"n","loadOnlyInlinedPlugins":false}`), Chained: []plan.File{{Path: "/conf/n/1.conf", Content: []byte(`{"type":"multus"}`)}}}},
			want:  outcome{Why: "waiting for a primary network's configuration (.conf or .conflist) in /conf", Skipped: []Skipped{{"1.conflist", "holds Multus itself"}}},
		},
		"a bad plugin in a folder": {
			files: []File{{Name: "1.conflist", Content: []byte(main10), Chained: []plan.File{{Path: "/conf/main/1.conf", Content: []byte(`{}`)}}}, {Name: "2.conflist", Content: []byte(main10), Chained: []plan.File{{Path: "/conf/main/2.conf", Missing: "permission denied"}}}},
			want: outcome{Why: "waiting for a primary network's configuration (.conf or .conflist) in /conf", Skipped: []Skipped{
				{"1.conflist", `takes a plugin from /conf/main/1.conf, which has no key "type"`}, {"2.conflist", "takes a plugin from /conf/main/2.conf, which cannot be read: permission denied"},
			}},
		},
		"pinned":               {pinned: "20-b.conf", files: []File{file("10-a.conflist", main10), file("20-b.conf", side20)}, want: outcome{"20-b.conf", "named by multusMasterCNI", nil}},
		"pinned, absent":       {pinned: "50-main.conflist", files: []File{file("05-side.conflist", side20), file("50-main.conflist.bak", main10)}, want: outcome{Why: "waiting for 50-main.conflist, the multusMasterCNI: there is no such file"}},
		"pinned, half there":   {pinned: "50-main.conflist", files: []File{file("05-side.conflist", side20), file("50-main.conflist", main10[:30])}, want: outcome{Why: "waiting for 50-main.conflist, the multusMasterCNI: it is not valid JSON", Skipped: []Skipped{{"50-main.conflist", "is not valid JSON"}}}},
		"pinned, our own":      {pinned: "08-self.conflist", files: []File{file("08-self.conflist", nesting)}, want: outcome{Why: "waiting for 08-self.conflist, the multusMasterCNI: it holds Multus itself", Skipped: []Skipped{{"08-self.conflist", "holds Multus itself"}}}},
		"pinned, our own file": {pinned: "00-multus.conf", files: []File{file("00-multus.conf", side20)}, want: outcome{Why: "waiting for 00-multus.conf, the multusMasterCNI: it is a file that Multus generates", Skipped: []Skipped{{"00-multus.conf", "is a file that Multus generates"}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			choice, skipped := Choose(tt.files, &config.Config{MultusMasterCNI: tt.pinned, MultusAutoconfigDir: "/conf"})
			for i := range skipped {
				skipped[i].Reason = brief(skipped[i].Reason)
			}
			if diff := cmp.Diff(tt.want, outcome{choice.Name, brief(choice.Why), skipped}); diff != "" {
				t.Error(diff)
			}
			if choice.Name != "" && len(choice.Config.Plugins()) == 0 {
				t.Error("the choice has no configuration")
			}
		})
	}
}
