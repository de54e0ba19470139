package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// table is what the run prints in the end.
type table struct {
	rows  [][4]string
	says  io.Writer // each row when it is known
	begin time.Time
}

func newTable(says io.Writer) *table { return &table{says: says, begin: time.Now()} }

// compare adds a row: a value beside its limit. form prints both.
func (t *table) compare(budget string, value, limit float64, form, detail string) {
	verdict := "ok"
	if value > limit {
		verdict = "OVER"
	}
	measured := fmt.Sprintf(form, value)
	if detail != "" {
		measured += "  (" + detail + ")"
	}
	t.add(budget, measured, "≤ "+fmt.Sprintf(form, limit), verdict)
}

// tell adds a row for a figure that has no limit.
func (t *table) tell(what, measured string) { t.add(what, measured, "", "") }

func (t *table) add(row ...string) {
	t.rows = append(t.rows, [4]string(row))
	fmt.Fprintf(t.says, "%5.1f s  %s: %s\n", time.Since(t.begin).Seconds(), row[0], row[1])
}

func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nBUDGET\tMEASURED\tLIMIT\t")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r[0], r[1], r[2], r[3])
	}
	return w.Flush()
}

const mib = 1 << 20

func sizes(_ context.Context, t *table, n *node) error {
	for _, b := range []struct {
		name  string
		limit float64
	}{{"multus-shim", 9}, {"multus", 30}} {
		info, err := os.Stat(filepath.Join(n.bin, b.name))
		if err != nil {
			return fmt.Errorf("'make build' makes the binaries: %w", err)
		}
		t.compare("size of "+b.name, float64(info.Size())/mib, b.limit, "%.2f MiB", "")
	}
	return nil
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
