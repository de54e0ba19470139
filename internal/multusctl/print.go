package multusctl

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/trial"
)

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(w, "  "+strings.Join(cells, "\t"))
}

func printPod(w io.Writer, p trial.Pod) {
	defer fmt.Fprintln(w)
	fmt.Fprintf(w, "pod %s\n", p)
	if p.Error != nil {
		printError(w, "ADD", p.Error)
		return
	}
	for _, warning := range p.Warnings {
		fmt.Fprintln(w, "  warning: "+warning)
	}
	t := table(w)
	row(t, "NETWORK", "INTERFACE", "MAC", "ADDRESSES", "DEFAULT ROUTE")
	for _, i := range p.Interfaces {
		row(t, i.Network, i.Name, i.MAC, join(i.Addresses), join(defaults(p, i.Name)))
	}
	t.Flush()
	fmt.Fprintln(w, "\n  routes")
	for _, r := range p.Routes {
		fmt.Fprintln(w, "    "+route(r))
	}
	fmt.Fprintf(w, "\n  network-status\n    %s\n", strings.ReplaceAll(string(p.Status), "\n", "\n    "))
}

// defaults are the gateways of an interface's default routes; the interface itself
// where a route has none.
func defaults(p trial.Pod, ifName string) (gateways []string) {
	for _, r := range p.Routes {
		if r.Interface != ifName || r.Destination.Bits() != 0 {
			continue
		}
		if r.Gateway == nil {
			gateways = append(gateways, "direct")
			continue
		}
		gateways = append(gateways, "via "+r.Gateway.String())
	}
	return gateways
}

func route(r trial.Route) string {
	text := r.Destination.String()
	if r.Destination.Bits() == 0 {
		text = "default"
		if r.Destination.Addr().Is6() {
			text = "default (IPv6)"
		}
	}
	if r.Gateway != nil {
		text += " via " + r.Gateway.String()
	}
	return text + " dev " + r.Interface
}

func join[T any](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}

func printError(w io.Writer, what string, err *types.Error) {
	fmt.Fprintf(w, "  %s failed, CNI error code %d:\n", what, err.Code)
	text := err.Msg
	if err.Details != "" {
		text += "; " + err.Details
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, "    "+strings.TrimSuffix(line, "\n"))
	}
}

func printExit(w io.Writer, e trial.Exec) {
	if e.ExitCode != 0 {
		fmt.Fprintf(w, "exit code %d\n", e.ExitCode)
	}
	fmt.Fprintln(w)
}

func printLeft(w io.Writer, left []string) {
	if len(left) == 0 {
		fmt.Fprintln(w, "Taken down; nothing is left: no interface, no address, no record.")
		return
	}
	fmt.Fprintln(w, "Taken down, but this was left behind:")
	for _, l := range left {
		fmt.Fprintln(w, "  "+l)
	}
}

func printKept(w io.Writer, pid int, p trial.Pod) {
	enter := fmt.Sprintf("nsenter -t %d -m -n -p", pid)
	fmt.Fprintf(w, `The node is kept by process %d.
  look into the node:   %s ip -br link
  look into a pod:      %s ip netns exec %s ip address
  read the logs:        %s cat %s
  take it down:         kill %d
`, pid, enter, enter, filepath.Base(p.NetNS), enter, strings.Join(trial.Logs(), " "), pid)
}

// plans is the JSON form of a plan (docs/try.md).
type plans struct {
	Pods     []trial.Planned `json:"pods"`
	Warnings []string        `json:"warnings,omitempty"`
}

func printPlans(w io.Writer, output string, warnings []string, all []trial.Planned) error {
	bad := 0
	for _, p := range all {
		if p.Error != nil {
			bad = 1
		}
		if output == asText {
			printPlan(w, p)
		}
	}
	if output == asJSON {
		if err := printJSON(w, plans{all, warnings}); err != nil {
			return err
		}
	}
	return code(bad)
}

func printPlan(w io.Writer, p trial.Planned) {
	defer fmt.Fprintln(w)
	fmt.Fprintf(w, "pod %s\n", p)
	if p.Error != nil {
		printError(w, "planning", p.Error)
		return
	}
	t := table(w)
	row(t, "NETWORK", "INTERFACE", "ROLE", "PLUGINS", "ASKS FOR")
	for _, a := range p.Plan.Attachments {
		var plugins []string
		for _, plugin := range a.Config.Plugins() {
			plugins = append(plugins, plugin.Type)
		}
		row(t, a.Network, a.Interface, string(a.Role), strings.Join(plugins, " > "), strings.Join(wishes(a), "; "))
	}
	t.Flush()
	for _, warning := range p.Plan.Warnings {
		fmt.Fprintln(w, "  warning: "+warning)
	}
}

// wishes are what the pod asks of an attachment, in words.
func wishes(a plan.Attachment) (all []string) {
	add := func(what string, values ...string) {
		if len(values) > 0 && values[0] != "" {
			all = append(all, what+" "+strings.Join(values, ", "))
		}
	}
	add("address", a.Request.IPs...)
	add("MAC", a.Request.MAC)
	add("GUID", a.Request.InfinibandGUID)
	add("device", a.DeviceID)
	for _, gateway := range a.Routes.Gateways {
		add("default route via", gateway.String())
	}
	if a.Routes.Own {
		all = append(all, "keeps its default route")
	}
	return all
}
