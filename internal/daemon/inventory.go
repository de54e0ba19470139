package daemon

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/multus-thick/multus/internal/attach"
)

// maxNetworks bounds the values of the label "network"; the smallest networks beyond
// it are summed up as "other".
const maxNetworks = 100

// inventory tells, when somebody looks, what the ledger holds.
type inventory struct {
	daemon *Daemon
	// The descriptions are of gauges.
	attachments, records, orphaned, damaged *prometheus.Desc
}

func newInventory(d *Daemon) *inventory {
	return &inventory{
		daemon:      d,
		attachments: prometheus.NewDesc("multus_attachments", "Attached interfaces of this node's pods, by network; the smallest networks beyond a hundred as \"other\".", []string{"network"}, nil),
		records:     prometheus.NewDesc("multus_ledger_records", "Sandboxes in the ledger by state; those in \"intent\" and \"detaching\" are unfinished.", []string{"state"}, nil),
		orphaned:    prometheus.NewDesc("multus_ledger_orphaned", "Sandboxes in the ledger whose pod is not, or no longer, on this node.", nil, nil),
		damaged:     prometheus.NewDesc("multus_ledger_damaged", "Damaged records that were set aside and are kept.", nil, nil),
	}
}

// Describe is prometheus.Collector's.
func (i *inventory) Describe(all chan<- *prometheus.Desc) {
	all <- i.attachments
	all <- i.records
	all <- i.orphaned
	all <- i.damaged
}

// Collect is prometheus.Collector's.
func (i *inventory) Collect(all chan<- prometheus.Metric) {
	gauge := func(what *prometheus.Desc, value int, labels ...string) {
		all <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, float64(value), labels...)
	}
	states := map[attach.State]int{attach.Intent: 0, attach.Attached: 0, attach.Detaching: 0}
	networks := map[string]int{}
	orphaned := 0
	for rec, err := range i.daemon.ledger.Each() {
		if err != nil {
			continue // Damaged, or the log, tells
		}
		states[rec.State]++
		if i.daemon.orphaned(rec) {
			orphaned++
		}
		if rec.State != attach.Attached {
			continue
		}
		for _, a := range rec.Plan.Attachments {
			networks[a.Network]++
		}
	}
	for state, n := range states {
		gauge(i.records, n, string(state))
	}
	for network, n := range largest(networks, maxNetworks) {
		gauge(i.attachments, n, network)
	}
	gauge(i.orphaned, orphaned)
	gauge(i.damaged, i.daemon.ledger.Damaged())
}

// orphaned tells that a record's pod is not known here, where all pods are known.
func (d *Daemon) orphaned(rec attach.Record) bool {
	if rec.Plan.Pod.Name == "" || d.Cluster.Problem() != "" {
		return false
	}
	pod, known := d.Cluster.Cached(rec.Plan.Pod.Namespace, rec.Plan.Pod.Name)
	return !known || !pod.Static && pod.UID != rec.Plan.Pod.UID
}

// largest keeps the networks with most attachments, and sums up the others.
func largest(networks map[string]int, most int) map[string]int {
	if len(networks) <= most {
		return networks
	}
	names := slices.SortedFunc(maps.Keys(networks), func(a, b string) int {
		return cmp.Or(cmp.Compare(networks[b], networks[a]), cmp.Compare(a, b))
	})
	kept := map[string]int{}
	for i, name := range names {
		label := name
		if i >= most {
			label = byOther
		}
		kept[label] += networks[name]
	}
	return kept
}
