package main

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestI4_ImageTable: the guide's table has every file of the images, and no other, each in
// the column of the image that it is in.
func TestI4_ImageTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/images.md")
	must(t, err)
	_, table, _ := strings.Cut(string(text), "\n## What is in them\n")
	table, _, _ = strings.Cut(table, "\n\nAll programs")
	name := regexp.MustCompile("`([^`]+)`")
	told := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		names, _, _ := strings.Cut(cells[1], " → ") // where a link points
		for i, column := range []string{"thick", "thin"} {
			for _, m := range name.FindAllStringSubmatch(names, -1) {
				if strings.TrimSpace(cells[2+i]) == "×" {
					told[column] = append(told[column], path.Base(m[1]))
				}
			}
		}
	}
	for _, f := range flavors("") {
		var want []string
		for _, e := range slices.Concat(f.base(), theirs(f)) {
			above := func(o entry) bool { return strings.HasPrefix(o.path, e.path+"/") }
			if !slices.ContainsFunc(slices.Concat(f.base(), theirs(f)), above) {
				want = append(want, path.Base(e.path))
			}
		}
		slices.Sort(want)
		slices.Sort(told[f.name])
		if diff := cmp.Diff(want, told[f.name]); diff != "" {
			t.Errorf("the table's column %s (-image +table):\n%s", f.name, diff)
		}
	}
}

// theirs are the entries of f.ours, without a look at the programs themselves.
func theirs(f flavor) []entry {
	entries := []entry{{path: path.Join(path.Dir(binDir), "LICENSE")}}
	for _, name := range f.programs {
		entries = append(entries, entry{path: path.Join(binDir, name)})
	}
	for name := range f.links {
		entries = append(entries, entry{path: name})
	}
	return entries
}
