package monitoring

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const folder = "../../deploy/monitoring/"

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alerts reads the rules as Prometheus does, which also checks expressions and templates.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var object struct{ Spec yaml.Node }
	if err := yaml.Unmarshal([]byte(read(t, folder+"rules.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var list []rulefmt.Rule
	for _, group := range groups.Groups {
		list = append(list, group.Rules...)
	}
	return list
}

// metrics are the names in the daemon's golden scrape.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^[a-z_]+`).FindAllString(read(t, "../../internal/daemon/testdata/scrape.txt"), -1) {
		names[m] = true
	}
	return names
}

// used are the metrics of an expression.
func used(t *testing.T, expr string) (names []string) {
	t.Helper()
	node, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}

type dashboard struct {
	Panels []struct {
		Title, Description string
		Targets            []struct{ Expr string }
	}
}

// shown are the expressions of the dashboard's panels, with values for Grafana's variables.
func shown(t *testing.T) (exprs []string) {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, folder+"multus.json")), &d); err != nil {
		t.Fatal(err)
	}
	for _, panel := range d.Panels {
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("the panel %q is empty, or says nothing about itself", panel.Title)
		}
		for _, target := range panel.Targets {
			exprs = append(exprs, strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(target.Expr))
		}
	}
	return exprs
}

// TestI4_AlertsUseMetricsThatExist, and so does the dashboard, which shows all of ours.
func TestI4_AlertsUseMetricsThatExist(t *testing.T) {
	known := metrics(t)
	known["up"] = true // Prometheus' own, of every target
	unseen := map[string]bool{}
	for name := range known {
		if strings.HasPrefix(name, "multus_") {
			unseen[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")] = true
		}
	}
	exprs := shown(t)
	for _, expr := range exprs {
		for _, name := range used(t, expr) {
			delete(unseen, regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""))
		}
	}
	same(t, "metrics that the dashboard leaves out", []string(nil), slices.Sorted(maps.Keys(unseen)))
	for _, alert := range alerts(t) {
		exprs = append(exprs, alert.Expr)
	}
	for _, expr := range exprs {
		for _, name := range used(t, expr) {
			if !known[name] {
				t.Errorf("%s: the daemon has no metric %q", expr, name)
			}
		}
	}
}

// TestI4_AlertsHaveRunbooks: each links to the section that says what to do, and each
// section is of an alert.
func TestI4_AlertsHaveRunbooks(t *testing.T) {
	var names, sections []string
	for _, alert := range alerts(t) {
		names = append(names, alert.Alert)
		same(t, alert.Alert+"'s runbook", "https://github.com/multus-thick/multus/blob/main/docs/runbooks.md#"+strings.ToLower(alert.Alert), alert.Annotations["runbook_url"])
		if alert.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, alert.Labels["severity"]) {
			t.Errorf("%s has no summary, or no severity", alert.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "../../docs/runbooks.md"), -1) {
		sections = append(sections, m[1])
	}
	same(t, "runbooks", names, sections)
}

// TestI4_AlertsFire as testdata/alerts.yaml says, and each of them in it.
func TestI4_AlertsFire(t *testing.T) {
	var file struct {
		Tests []unit
	}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "testdata/alerts.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	rules := alerts(t)
	fired := map[string]bool{}
	for _, u := range file.Tests {
		t.Run(u.Name, func(t *testing.T) {
			for _, want := range u.Alerts {
				got := u.firing(t, rules, want.At.Duration)
				same(t, fmt.Sprintf("firing at %s", want.At), want.Firing, got)
				for _, text := range got {
					name, _, _ := strings.Cut(text, "{")
					fired[name] = true
				}
			}
		})
	}
	for _, rule := range rules {
		if !fired[rule.Alert] {
			t.Errorf("no case in which %s fires", rule.Alert)
		}
	}
}
