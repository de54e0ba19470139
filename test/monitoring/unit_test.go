package monitoring

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"go.yaml.in/yaml/v3"
)

// unit is one test as promtool has them: series in its notation, a sample a minute, and
// what fires when. All rules are evaluated, so an alert that is not named must be silent.
// promtool itself, and Prometheus' package rules, draw in the clients of three clouds,
// which takes minutes to build.
type unit struct {
	Name   string
	Input  []series `yaml:"input_series"`
	Alerts []expected
}

type series struct{ Series, Values string }

type expected struct {
	At     duration
	Firing []string // name and labels, without the severity
}

type duration struct{ time.Duration }

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := model.ParseDuration(node.Value)
	d.Duration = time.Duration(parsed)
	return err
}

const interval = time.Minute

// firing evaluates the rules every minute up to at, and lists what fires then.
func (u unit) firing(t *testing.T, rules []rulefmt.Rule, at time.Duration) (list []string) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	memory := u.load(t)
	for _, rule := range rules {
		list = append(list, holding(t, engine, memory, rule, at)...)
	}
	slices.Sort(list)
	return list
}

// holding lists the label sets for which a rule's expression has held for long enough.
func holding(t *testing.T, engine *promql.Engine, memory storage.Queryable, rule rulefmt.Rule, at time.Duration) (list []string) {
	t.Helper()
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= at; now += interval {
		query, err := engine.NewInstantQuery(t.Context(), memory, nil, rule.Expr, time.Unix(0, 0).Add(now))
		if err != nil {
			t.Fatal(err)
		}
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		still := map[string]time.Duration{}
		for _, sample := range vector {
			name := rule.Alert + sample.Metric.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String()
			still[name] = now
			if begin, ok := since[name]; ok {
				still[name] = begin
			}
		}
		since = still
		query.Close()
	}
	for name, begin := range since {
		if at-begin >= time.Duration(rule.For) {
			list = append(list, name)
		}
	}
	return list
}

// load makes a storage of the series.
func (u unit) load(t *testing.T) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for _, s := range u.Input {
		name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(s.Series + " " + s.Values)
		if err != nil {
			t.Fatalf("%s: %v", s.Series, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{t: (time.Duration(i) * interval).Milliseconds(), f: v.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &matching{SeriesSet: storage.EmptySeriesSet(), all: all, matchers: matchers}
		},
	}}
}

// matching are the series that all matchers take.
type matching struct {
	storage.SeriesSet // Err and Warnings
	all               []storage.Series
	matchers          []*labels.Matcher
	at                storage.Series
}

func (m *matching) At() storage.Series { return m.at }

func (m *matching) Next() bool {
	for len(m.all) > 0 {
		m.at, m.all = m.all[0], m.all[1:]
		if !slices.ContainsFunc(m.matchers, func(l *labels.Matcher) bool { return !l.Matches(m.at.Labels().Get(l.Name)) }) {
			return true
		}
	}
	return false
}

// sample is a number at a time.
type sample struct {
	chunks.Sample // histograms, which a list of numbers has none of

	t int64
	f float64
}

func (s sample) T() int64               { return s.t }
func (s sample) F() float64             { return s.f }
func (sample) ST() int64                { return 0 }
func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample    { return s }
