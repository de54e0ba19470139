package daemon

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/multus-thick/multus/internal/attach"
)

// maxNetworks bounds the values of the label "network"; the smallest networks beyond
// it are summed up as "other".
const maxNetworks = 100

// countPatience is how long a scrape waits for the ledger to be counted. Where Multus v4 has
// left very many files that takes longer, and the scrape tells the count before.
const countPatience = time.Second

// inventory tells, when somebody looks, what the ledger holds.
type inventory struct {
	daemon *Daemon
	// The descriptions are of gauges.
	attachments, records, orphaned, damaged *prometheus.Desc

	mu       sync.Mutex
	counting chan struct{} // closed at the count's end; nil where none is under way
	last     *count        // nil before the first
	next     time.Time     // when one may begin
}

// count is what was counted.
type count struct {
	states   map[attach.State]int
	networks map[string]int
	orphaned int
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
	gauge(i.damaged, i.daemon.ledger.Damaged())
	c := i.count()
	if c == nil {
		return
	}
	for state, n := range c.states {
		gauge(i.records, n, string(state))
	}
	for network, n := range largest(c.networks, maxNetworks) {
		gauge(i.attachments, n, network)
	}
	gauge(i.orphaned, c.orphaned)
}

// count counts the ledger, or joins a count that is under way, and returns the newest that
// has ended.
func (i *inventory) count() *count {
	i.mu.Lock()
	ended := i.counting
	begin := time.Now()
	if ended == nil && begin.Before(i.next) {
		defer i.mu.Unlock()
		return i.last
	}
	if ended == nil {
		ended = make(chan struct{})
		i.counting = ended
		go func() {
			c := i.daemon.count()
			i.mu.Lock()
			i.last, i.counting = c, nil
			if time.Since(begin) > countPatience {
				i.next = rested(begin, 0)
			}
			i.mu.Unlock()
			close(ended)
		}()
	}
	i.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(countPatience):
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

func (d *Daemon) count() *count {
	c := count{states: map[attach.State]int{attach.Intent: 0, attach.Attached: 0, attach.Detaching: 0}, networks: map[string]int{}}
	pace := pacer(0)
	for rec, err := range d.ledger.Each() {
		_ = pace.next(context.Background()) //nolint:forbidigo // a scrape may end before
		if err != nil {
			continue // Damaged, or the log, tells
		}
		c.states[rec.State]++
		if d.orphaned(rec) {
			c.orphaned++
		}
		if rec.State != attach.Attached {
			continue
		}
		for _, a := range rec.Plan.Attachments {
			c.networks[a.Network]++
		}
	}
	return &c
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
