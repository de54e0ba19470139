package confgen

import (
	"io/fs"
	"testing"
)

// TestI4_Taken: which file a runtime takes, and which are Multus's own.
func TestI4_Taken(t *testing.T) {
	file := func(name, content string) File { return File{Name: name, Content: []byte(content)} }
	const (
		bridge = `{"cniVersion":"1.0.0","name":"a","type":"bridge"}`
		shim   = `{"cniVersion":"1.0.0","name":"b","type":"multus-shim"}`
		thin   = `{"cniVersion":"1.0.0","name":"c","plugins":[{"type":"multus"}]}`
		nested = `{"cniVersion":"1.0.0","name":"d","plugins":[{"type":"bridge"},{"type":"multus"}]}`
	)
	tests := map[string]struct {
		files []File
		want  string // file and network
	}{
		"none":                  {nil, " "},
		"first by name":         {[]File{file("10-b.conf", bridge), file("00-multus.conf", shim)}, "00-multus.conf b"},
		"other suffixes":        {[]File{file("00-a.conf.old", bridge), file("01-a.txt", bridge), file("02-a.json", bridge)}, "02-a.json a"},
		"broken ones":           {[]File{file("00-a.conf", "{"), file("01-a.conf", ""), file("02-a.conf", `{"name":"x"}`), file("03-a.conflist", thin)}, "03-a.conflist c"},
		"a network has a name":  {[]File{file("00-a.conf", `{"type":"bridge"}`)}, " "},
		"one that is not to be": {[]File{{Name: "00-a.conf", Err: fs.ErrPermission}}, " "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			name, conf := Taken(tt.files)
			network := ""
			if name != "" {
				network = conf.Name()
			}
			if got := name + " " + network; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, tt := range []struct {
		file   File
		own    bool
		plugin string
	}{
		{file("00-multus.conf", shim), true, "multus-shim"},
		{file("00-multus.conflist", thin), true, "multus"},
		{file("00-multus.conf", bridge), true, ""},
		{file("00-multus.conf", "{"), true, ""},
		{file("00-multus.conf.bak", shim), false, "multus-shim"},
		{file("70-multus.conf", shim), false, "multus-shim"},
		{file("10-d.conflist", nested), false, ""},
	} {
		if own, plugin := OwnFile(tt.file), OwnPlugin(tt.file); own != tt.own || plugin != tt.plugin {
			t.Errorf("%s %s: own %t, plugin %q", tt.file.Name, tt.file.Content, own, plugin)
		}
	}
}
