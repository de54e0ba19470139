package multusctl

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/nodestate"
)

func printNode(w io.Writer, s nodestate.State) {
	t := table(w)
	line := func(what, is string) { fmt.Fprintln(t, what+"\t"+is) }
	line("primary network", s.Config.Primary.String())
	line("runtime takes", runtimeLine(s.Config))
	line("daemon", daemonLine(s))
	attached, unfinished, damaged := s.Summary()
	records := fmt.Sprintf("%d attached, %d unfinished, %d damaged", attached, unfinished, damaged)
	if s.RecordsError != "" {
		records = s.RecordsError
	}
	line("pods", records)
	t.Flush()
	if len(s.Records) > 0 {
		fmt.Fprintln(w)
	}
}

func runtimeLine(c nodestate.Config) string {
	switch {
	case c.Error != "":
		return c.Error
	case c.Taken == "":
		return "nothing: no file in its folder is valid"
	case c.Taken == c.Generated:
		return c.Taken + ", which is Multus's"
	}
	return c.Taken + ", which is not Multus's"
}

func daemonLine(s nodestate.State) string {
	d := s.Daemon
	switch {
	case d.State == nil && s.Config.Plugin == "multus":
		return "none: the plugin is the thin one"
	case d.State == nil:
		return d.Error
	}
	ready := "ready"
	if d.State.NotReady != "" {
		ready = "not ready: " + d.State.NotReady
	}
	return fmt.Sprintf("%s; %d ADDs in flight, %d waiting; %s", ready, d.State.InFlight, d.State.Waiting, d.State.Version)
}

func printRecords(w io.Writer, records []nodestate.Record, now time.Time) {
	if len(records) == 0 {
		return
	}
	t := table(w)
	fmt.Fprintln(t, "POD\tSANDBOX\tSTATE\tAGE\tNETWORK\tINTERFACE\tADDRESSES")
	for _, r := range records {
		head := []string{r.Pod.String(), shortID(r.Sandbox), recordState(r), age(now.Sub(r.Created))}
		if r.Pod.Name == "" {
			head[0] = "-"
		}
		if r.Damaged != "" {
			head[3] = age(now.Sub(r.Changed))
			fmt.Fprintln(t, strings.Join(head, "\t")+"\t"+r.Damaged)
		}
		for _, a := range r.Attachments {
			fmt.Fprintln(t, strings.Join(append(head, a.Network+attachmentState(a), dash(a.Interface), dash(join(a.Addresses))), "\t"))
			head = []string{"", "", "", ""}
		}
	}
	t.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func shortID(id string) string { return id[:min(13, len(id))] }

func recordState(r nodestate.Record) string {
	switch {
	case r.Damaged != "":
		return "damaged"
	case r.Origin != "":
		return string(r.State) + " (" + string(r.Origin) + ")"
	case r.Gone:
		return string(r.State) + " (namespace gone)"
	}
	return string(r.State)
}

func attachmentState(a nodestate.Attachment) string {
	switch {
	case a.Detached:
		return " (given back)"
	case a.Refused:
		return " (refused)"
	}
	return ""
}

// age is as kubectl prints it, in its largest unit.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
}

func printFindings(w io.Writer, all []nodestate.Finding) {
	t := table(w)
	for _, f := range all {
		fmt.Fprintln(t, string(f.Level)+"\t"+f.Check+"\t"+f.Found)
	}
	t.Flush()
	for _, f := range all {
		if f.Level != nodestate.Wrong {
			continue
		}
		fmt.Fprintf(w, "\n%s\n  symptom: %s\n  cause:   %s\n  fix:     %s\n", f.Check, f.Symptom, f.Found, f.Fix)
	}
}
