// Package house holds the rules of the tree that no compiler checks.
package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// id is what a test's name begins with: a scenario of reports.md (T5), a section of
// contract.md (C1_4), a rule of design.md (R3), or an issue (I2_).
var id = regexp.MustCompile(`^Test(T\d+|C\d+_\d+(_\d+)?|R\d+|I\d+_)[A-Z]`)

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// TestI2_EveryTestNamesWhatItHolds: a test without an id holds nobody's promise.
func TestI2_EveryTestNamesWhatItHolds(t *testing.T) {
	each(t, "_test.go", func(path, text string) {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			if !id.MatchString(m[1]) {
				t.Errorf("%s: %s begins with no id", path, m[1])
			}
		}
	})
}

// TestI2_EveryPackageSaysWhatItIsFor: a package comment is the first thing a newcomer reads.
func TestI2_EveryPackageSaysWhatItIsFor(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^// (Package|Command) `)
	documented := map[string]bool{}
	each(t, ".go", func(path, text string) {
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || comment.MatchString(text)
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func each(t *testing.T, suffix string, look func(path, text string)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) || strings.Contains(path, "/testdata/") || strings.HasPrefix(path, root+"/tools") {
			return err
		}
		seen++
		text, err := os.ReadFile(path)
		look(path, string(text))
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d files seen: %v", seen, err)
	}
}
