package daemon

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// onePod is a cluster of one pod without a status.
type onePod struct {
	Cluster
	pod     plan.Pod
	written []string
}

func (c *onePod) Cached(string, string) (gather.Pod, bool) {
	return gather.Pod{Subject: plan.Subject{Pod: c.pod}}, true
}

func (c *onePod) PatchStatus(_ context.Context, _ plan.Pod, text string) error {
	c.written = append(c.written, text)
	return nil
}

// TestT19OlderSandboxOfThePod: a sandbox that the runtime has not deleted yet does not
// take the status back to its own.
func TestT19OlderSandboxOfThePod(t *testing.T) {
	pod := plan.Pod{Namespace: "app", Name: "web", UID: "u"}
	conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"p","type":"bridge"}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sandbox := func(ip string, age time.Duration) attach.Record {
		return attach.Record{
			State: attach.Attached, Created: now.Add(-age), Sandbox: attach.Sandbox{ContainerID: ip},
			Plan: plan.Plan{Pod: pod, Attachments: []plan.Attachment{{Role: plan.Primary, Network: "p", Interface: "eth0", Config: conf}}},
			Outcomes: []attach.Outcome{{Result: []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n"}],` +
				`"ips":[{"address":"` + ip + `/24","interface":0}]}`)}},
		}
	}
	old, young, fresh := sandbox("10.1.0.2", 2*time.Hour), sandbox("10.1.0.3", time.Hour), sandbox("10.1.0.4", settled/2)
	dead := sandbox("10.1.0.5", time.Hour)
	dead.Sandbox.NetNS = "gone"
	for _, c := range []struct {
		records []attach.Record
		want    []string
	}{
		{[]attach.Record{young, old}, []string{"10.1.0.3"}},
		{[]attach.Record{old, young}, []string{"10.1.0.3"}},
		{[]attach.Record{old, fresh}, nil}, // its report may be on the way
		{[]attach.Record{old, dead}, nil},  // a stray's, perhaps: what it has now is not recorded
	} {
		cluster := &onePod{pod: pod}
		p := &publisher{cluster: cluster, log: slog.New(slog.DiscardHandler), metrics: newMetrics(), pending: map[string]*publication{}, writing: map[string]*publication{}, load: loads(c.records...), running: t.Context(), gone: func(netns string) bool { return netns == "gone" }}
		p.catchUp(now, c.records)
		p.workers.Wait()
		var got []string
		for _, text := range cluster.written {
			for _, e := range parsed(t, text) {
				got = append(got, e.IPs...)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("published addresses (-want +got):\n%s", diff)
		}
	}
}

// loads is a ledger of these records.
func loads(all ...attach.Record) func(string) (attach.Record, error) {
	return func(id string) (attach.Record, error) {
		for _, rec := range all {
			if rec.Sandbox.ContainerID == id {
				return rec, nil
			}
		}
		return attach.Record{}, attach.ErrNoRecord
	}
}

// TestT19CatchUpWithOldRecords: reading all records may take long; what was detached
// meanwhile does not come back into the pod's status, nor into its claims'.
func TestT19CatchUpWithOldRecords(t *testing.T) {
	before, now := threeDevices(), threeDevices()
	now.Plan.Attachments, now.Outcomes = now.Plan.Attachments[:2], now.Outcomes[:2]
	claims := &fakeClaims{claims: map[string][]plan.ClaimStatus{}}
	cluster := &statusOf{onePod{pod: before.Plan.Pod}, netspec.FormatStatus(flatten(attach.StatusEntries(now)))}
	p := &publisher{
		claims: claims, cluster: cluster, log: slog.New(slog.DiscardHandler), metrics: newMetrics(), running: t.Context(), load: loads(now),
		pending: map[string]*publication{}, writing: map[string]*publication{}, gone: func(string) bool { return false },
	}
	p.catchUp(time.Now(), []attach.Record{before})
	p.workers.Wait()
	if diff := cmp.Diff([]string(nil), cluster.written); diff != "" || len(claims.claims) > 0 {
		t.Errorf("written: %s; claims: %v", diff, claims.claims)
	}
}

// statusOf is a cluster of one pod, with a status.
type statusOf struct {
	onePod
	status string
}

func (c *statusOf) Cached(string, string) (gather.Pod, bool) {
	return gather.Pod{Subject: plan.Subject{Pod: c.pod, Annotations: map[string]string{netspec.AnnotationStatus: c.status}}}, true
}

func parsed(t *testing.T, text string) []netspec.StatusEntry {
	t.Helper()
	entries, err := netspec.ParseStatus(text)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
