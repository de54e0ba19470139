package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// fakeClaims writes down what is published.
type fakeClaims struct {
	mu     sync.Mutex
	fail   []error // of the next attempts
	tries  int
	claims map[string][]plan.ClaimStatus
}

func (c *fakeClaims) Devices(context.Context, plan.Pod) (plan.Devices, error) {
	return plan.Devices{}, nil
}

func (c *fakeClaims) Publish(_ context.Context, pod plan.Pod, claim string, devices []plan.ClaimStatus) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries++
	if len(c.fail) > 0 {
		err := c.fail[0]
		c.fail = c.fail[1:]
		return err
	}
	c.claims[pod.String()+" "+claim] = devices
	return nil
}

func claimed(claim, device string) *plan.Claimed {
	return &plan.Claimed{Claim: claim, Driver: "nic.example", Pool: "n1", Device: device}
}

// threeDevices is the record of a sandbox with two devices of one claim and one of another.
func threeDevices() attach.Record {
	conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"p","type":"sriov"}`))
	if err != nil {
		panic(err)
	}
	rec := attach.Record{State: attach.Attached, Plan: plan.Plan{Pod: plan.Pod{Namespace: "app", Name: "web", UID: "u"}}}
	for i, claim := range []*plan.Claimed{nil, claimed("a", "vf0"), claimed("b", "vf1"), claimed("a", "vf2")} {
		name := []string{"eth0", "net1", "net2", "net3"}[i]
		rec.Plan.Attachments = append(rec.Plan.Attachments, plan.Attachment{Role: plan.Secondary, Network: "p", Interface: name, Config: conf, Claim: claim})
		rec.Outcomes = append(rec.Outcomes, attach.Outcome{Result: []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"` + name + `","mac":"02::` + name + `","sandbox":"/n"}],"ips":[{"address":"10.1.0.2/24","interface":0}]}`)})
	}
	return rec
}

// TestI5_ClaimStatusOfARecord: each claim of a sandbox is told of its devices, and tried
// again while that may help.
func TestI5_ClaimStatusOfARecord(t *testing.T) {
	rec := threeDevices()
	of := func(claim, device, name string) plan.ClaimStatus {
		return plan.ClaimStatus{Claimed: *claimed(claim, device), Interface: name, IPs: []string{"10.1.0.2/24"}, MAC: "02::" + name}
	}
	all := map[string][]plan.ClaimStatus{
		"app/web a": {of("a", "vf0", "net1"), of("a", "vf2", "net3")},
		"app/web b": {of("b", "vf1", "net2")},
	}
	for name, c := range map[string]struct {
		fail  []error
		tries int
		want  map[string][]plan.ClaimStatus
	}{
		"at once":       {nil, 2, all},
		"the API away":  {slices.Repeat([]error{gather.ErrNotYet}, 4), 6, all},
		"others own it": {slices.Repeat([]error{errors.New("conflict")}, 2), 2, map[string][]plan.ClaimStatus{}},
		"never":         {slices.Repeat([]error{gather.ErrNotYet}, 99), 2 * claimTries, map[string][]plan.ClaimStatus{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claims := &fakeClaims{fail: c.fail, claims: map[string][]plan.ClaimStatus{}}
				p := &publisher{claims: claims, log: slog.New(slog.DiscardHandler), running: t.Context(), writing: map[string]*publication{}}
				p.publishClaims(rec.Plan.Pod, claimStatus(rec))
				p.workers.Wait()
				if diff := cmp.Diff(c.want, claims.claims); diff != "" || claims.tries != c.tries {
					t.Errorf("%d tries: %s", claims.tries, diff)
				}
			})
		})
	}
}

// TestI5_ClaimStatusAfterAnUnplug: a claim whose last device was detached is told so.
func TestI5_ClaimStatusAfterAnUnplug(t *testing.T) {
	before, now := threeDevices(), threeDevices()
	now.Plan.Attachments, now.Outcomes = now.Plan.Attachments[:2], now.Outcomes[:2]
	want := map[string][]plan.ClaimStatus{"a": claimStatus(now)["a"], "b": {}}
	if diff := cmp.Diff(want, claimChange(before, now)); diff != "" || len(want["a"]) != 1 {
		t.Error(want, diff)
	}
}

// TestI5_ClaimStatusInOrder: what could not be written at once does not come after what is
// so since.
func TestI5_ClaimStatusInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claims := &fakeClaims{claims: map[string][]plan.ClaimStatus{}, fail: []error{gather.ErrNotYet, gather.ErrNotYet}}
		p := &publisher{claims: claims, log: slog.New(slog.DiscardHandler), running: t.Context(), writing: map[string]*publication{}}
		before, now := threeDevices(), threeDevices()
		now.Plan.Attachments, now.Outcomes = now.Plan.Attachments[:1], now.Outcomes[:1]
		p.publishClaims(before.Plan.Pod, claimStatus(before))
		time.Sleep(100 * time.Millisecond)
		p.publishClaims(now.Plan.Pod, claimChange(before, now))
		p.workers.Wait()
		if diff := cmp.Diff(map[string][]plan.ClaimStatus{"app/web a": {}, "app/web b": {}}, claims.claims); diff != "" || len(p.writing) > 0 {
			t.Error(diff, p.writing)
		}
	})
}

// TestI5_ClaimStatusAfterAReport: it is written where the key asks for it, from the record.
func TestI5_ClaimStatusAfterAReport(t *testing.T) {
	for _, wished := range []bool{true, false} {
		claims := &fakeClaims{claims: map[string][]plan.ClaimStatus{}}
		r := prepare(t, map[string]any{"claimStatus": wished}, func(o *Options) { o.Claims = claims })
		r.start()
		conf, err := cniconf.Parse([]byte(`{"cniVersion":"1.0.0","name":"lan","type":"macvlan"}`))
		r.Must(err)
		device := plan.Claimed{Claim: "nics", Driver: "nic.example", Pool: "n1", Device: "vf0"}
		lock, err := r.d.ledger.Lock(t.Context(), "c1")
		r.Must(err)
		r.Must(r.d.ledger.Save(attach.Record{
			State: attach.Attached, Sandbox: attach.Sandbox{ContainerID: "c1"}, Outcomes: []attach.Outcome{{Result: []byte(`{"cniVersion":"1.0.0"}`)}},
			Plan: plan.Plan{Version: plan.Version, Pod: plan.Pod{Namespace: "app", Name: "web", UID: "u"}, Attachments: []plan.Attachment{{Role: plan.Secondary, Network: "app/lan", Interface: "net1", Config: conf, Claim: &device}}},
		}, true))
		lock.Release()
		r.put("web", "u", "lan")
		_, err = r.client().Report(t.Context(), attached("web"))
		r.Must(err)
		r.stop()
		r.end() // with all that it had to write
		want := map[string][]plan.ClaimStatus{}
		if wished {
			want["app/web nics"] = []plan.ClaimStatus{{Claimed: device, Interface: "net1"}}
		}
		r.Same("what claims were told", want, claims.claims)
	}
}
