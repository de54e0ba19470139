package config

import (
	stdflag "flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = stdflag.Bool("rewrite", false, "rewrite the table of keys in docs/configure.md")

const keysDoc = "../../docs/configure.md"

// TestI2_DocsNameEveryKey keeps the guide's table in step with the decoder's.
func TestI2_DocsNameEveryKey(t *testing.T) {
	raw, err := os.ReadFile(keysDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: made by go test ./internal/config -rewrite -->\n", "<!-- end of keys -->"
	before, rest, ok1 := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks of its table", keysDoc)
	}
	want := before + begin + table() + end + after
	if *rewrite {
		if err := os.WriteFile(keysDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Errorf("the table of %s is not that of Keys: run go test ./internal/config -rewrite", keysDoc)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| key | what | default | read by | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range Keys() {
		meaning := k.Meaning
		if k.Instead != "" {
			meaning = "without effect; `" + k.Instead + "` has"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, code(k.Default), readers(k), meaning)
	}
	return strings.ReplaceAll(b.String(), "<nil>", "")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func readers(k Key) string {
	var names []string
	for _, r := range k.Readers {
		names = append(names, fmt.Sprint(r))
	}
	return strings.Join(names, ", ")
}
