package multusctl

import (
	"fmt"
	"io"
	"strings"

	"github.com/multus-thick/multus/internal/migrate"
)

func printMigration(w io.Writer, i migrate.Installation) {
	printFound(w, i.Found)
	printBecomes(w, i.Becomes)
	printRemarks(w, "What changes", i.Changes)
	printRemarks(w, "What does not come along", i.NotCarried)
	fmt.Fprintln(w, "The way")
	for n, s := range i.Becomes.Steps {
		fmt.Fprintf(w, "  %d. %s\n", n+1, s.Step)
		for _, c := range s.Commands {
			fmt.Fprintln(w, "       "+c)
		}
		fmt.Fprintln(w, "     pods: "+s.Pods)
	}
}

func printFound(w io.Writer, f migrate.Found) {
	name := f.Name
	if f.Namespace != "" {
		name = "DaemonSet " + f.Namespace + "/" + f.Name
	}
	fmt.Fprintf(w, "Found: %s (%s)\n", name, f.Source)
	t := table(w)
	line := func(what, is string) {
		if is != "" {
			fmt.Fprintln(t, "  "+what+"\t"+is)
		}
	}
	version := f.Version
	if version == "" {
		version = "of a version that its tag does not tell"
	}
	line("kind", string(f.Kind)+" "+version)
	line("image", f.Image)
	line("managed by", f.ManagedBy)
	line("arguments", strings.Join(f.Args, " "))
	for n, k := range f.Keys {
		what, from := "", " ("+k.From+")"
		if n == 0 {
			what = "keys"
		} else if k.From == f.Keys[n-1].From {
			from = ""
		}
		fmt.Fprintf(t, "  %s\t%s: %s%s\n", what, k.Key, short(k.Value), from)
	}
	line("primary network", f.Primary)
	line("distribution", f.Distribution+": "+f.Because)
	var mounts []string
	for _, m := range f.Mounts {
		mounts = append(mounts, m.Host+" at "+m.Pod)
	}
	line("mounts", strings.Join(mounts, "\n  \t"))
	line("memory limit", f.MemoryLimit)
	for _, p := range f.Probes {
		line(p.Probe, p.Runs)
	}
	t.Flush()
	fmt.Fprintln(w)
}

// short is a value in one line; objects and lists may hold whole networks.
func short(value []byte) string {
	const most = 60
	text := strings.Join(strings.Fields(string(value)), " ")
	if len(text) > most && (text[0] == '{' || text[0] == '[') {
		return text[:1] + "…" + text[len(text)-1:]
	}
	return text
}

func printBecomes(w io.Writer, b migrate.Becomes) {
	fmt.Fprintln(w, "Becomes")
	t := table(w)
	line := func(what, is string) { fmt.Fprintln(t, "  "+what+"\t"+is) }
	line("kind", string(b.Kind))
	line("image", b.Image)
	line("manifest", "deploy/"+b.Base)
	if b.Chart != nil && b.Chart.Distribution != "" {
		line("with Helm", "deploy/chart with -f "+b.Chart.Distribution+" and the values below")
	} else if b.Chart != nil {
		line("with Helm", "deploy/chart with the values below")
	} else {
		line("with Helm", "not without more: the chart has no values for the patch below")
	}
	line("memory limit", b.MemoryLimit)
	t.Flush()
	for _, f := range b.Files {
		printFile(w, f.Name, f.Content)
	}
	if b.Chart != nil {
		printFile(w, "values of the chart", b.Chart.Values)
	}
	fmt.Fprintln(w)
}

func printFile(w io.Writer, name, content string) {
	fmt.Fprintf(w, "\n  %s\n", name)
	for line := range strings.Lines(content) {
		fmt.Fprint(w, "    "+line)
	}
}

func printRemarks(w io.Writer, title string, all []migrate.Remark) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	for _, r := range all {
		fmt.Fprintf(w, "  %s\n    because %s\n", r.What, r.Why)
		if r.Do != "" {
			fmt.Fprintln(w, "    do: "+r.Do)
		}
	}
	fmt.Fprintln(w)
}
