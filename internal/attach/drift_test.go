package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// drift is what a look at pod-0 finds.
func (r *rig) drift(w *attach.Watch) []string {
	r.t.Helper()
	found, err := w.Look(r.t.Context(), "pod-0")
	if err != nil {
		r.t.Fatal(err)
	}
	all := []string{}
	for _, d := range found {
		line := fmt.Sprintf("%s %s: %s", d.Pod, d.Network, d)
		if d.Mended {
			line += " (mended)"
		}
		if d.Err != nil {
			line += ": " + d.Err.Error()
		}
		all = append(all, line)
	}
	return all
}

func TestI5_Drift(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(*rig)
		want []string
		mend []string
	}{
		{"nothing", func(*rig) {}, []string{}, []string{}},
		{
			"an interface", func(r *rig) { r.host.SetLink(pod0.NetNS, "net2", nil) },
			[]string{"ns/pod-0 ns/net-b: the interface net2 is gone"},
			[]string{"ns/pod-0 ns/net-b: the interface net2 is gone"},
		},
		{
			"an address, and what it was", func(r *rig) { r.host.SetLink(pod0.NetNS, "net2", &attach.Facts{MAC: "02:00:00:00:00:99"}) },
			[]string{
				"ns/pod-0 ns/net-b: the interface net2 has the MAC 02:00:00:00:00:99, it was given MAC",
				"ns/pod-0 ns/net-b: the interface net2 has lost the address ADDRESS", "ns/pod-0 ns/net-b: the interface net2 is down",
			},
			[]string{
				"ns/pod-0 ns/net-b: the interface net2 has the MAC 02:00:00:00:00:99, it was given MAC",
				"ns/pod-0 ns/net-b: the interface net2 has lost the address ADDRESS (mended)", "ns/pod-0 ns/net-b: the interface net2 is down (mended)",
			},
		},
		{
			"the default route", func(r *rig) { r.host.DropRoutes(pod0.NetNS, false) },
			[]string{"ns/pod-0 ns/net-a: the interface net1 has lost its default route 0.0.0.0/0"},
			[]string{"ns/pod-0 ns/net-a: the interface net1 has lost its default route 0.0.0.0/0 (mended)"},
		},
		{"the namespace", func(r *rig) { r.host.RemoveNetNS(pod0.NetNS) }, []string{}, []string{}},
		{"its record is not complete", func(r *rig) { r.host.SetLink(pod0.NetNS, "net2", nil); r.put(attach.Detaching, "") }, []string{}, []string{}},
		{"it never looked as its result says", func(r *rig) {
			r.host.SetLink(pod0.NetNS, "net2", nil)
			rec, _ := r.host.Record("pod-0")
			rec.Outcomes[2].Unseen = true
			r.host.PutRecord(rec)
		}, []string{}, []string{}},
		{"v4 attached it", func(r *rig) { r.host.SetLink(pod0.NetNS, "net2", nil); r.put(attach.Attached, attach.FromV4) }, []string{}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, mend := range []bool{false, true} {
				r := newRig(t)
				facts, err := r.Links.Facts(t.Context(), pod0.NetNS, "net2")
				if err != nil {
					t.Fatal(err)
				}
				w := &attach.Watch{Engine: r.Engine, Mend: mend}
				same(t, []string{}, r.drift(w))
				c.lose(r)
				want := c.want
				if mend {
					want = c.mend
				}
				known := strings.NewReplacer(facts.MAC, "MAC", facts.Addresses[0].String(), "ADDRESS").Replace
				got := r.drift(w)
				for i := range got {
					got[i] = known(got[i])
				}
				same(t, want, got)
			}
		})
	}
}

// put changes the record of pod-0.
func (r *rig) put(state attach.State, origin attach.Origin) {
	rec, err := r.host.Record("pod-0")
	if err != nil {
		r.t.Fatal(err)
	}
	rec.State, rec.Origin = state, origin
	r.host.PutRecord(rec)
}

// What cannot be put right says so; a sandbox that somebody works on is let be.
func TestI5_DriftThatStays(t *testing.T) {
	r := newRig(t)
	w := &attach.Watch{Engine: r.Engine, Mend: true}
	r.host.DropRoutes(pod0.NetNS, false)
	r.host.On("mend", fakehost.Fail(errors.New("file exists")))
	same(t, []string{"ns/pod-0 ns/net-a: the interface net1 has lost its default route 0.0.0.0/0: it cannot be put right: file exists"}, r.drift(w))
	lock, err := r.Ledger.Lock(t.Context(), "pod-0")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	same(t, []string{}, r.drift(w))
}

// showing shows one interface as the test says.
type showing struct {
	*fakehost.Process
	facts attach.Facts
}

func (s *showing) Facts(context.Context, string, string) (attach.Facts, error) { return s.facts, nil }

// An interface that is down and a route of the result count where they were otherwise before.
func TestI5_DriftOfWhatWasThere(t *testing.T) {
	r := newRig(t)
	r.mustAdd(pod1, planOf(pod1, network("net-a", "net1", `,"routes":[{"dst":"10.9.0.0/16","gw":"10.1.0.1"}]`)))
	rec, _ := r.host.Record("pod-1")
	rec.Outcomes[0].Result = json.RawMessage(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/n"}],"routes":[{"dst":"10.9.0.0/16","gw":"10.1.0.1"}]}`)
	r.host.PutRecord(rec)
	route := attach.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), GW: netip.MustParseAddr("10.1.0.1")}
	links := &showing{Process: r.host.Process()}
	r.Links = links
	w := &attach.Watch{Engine: r.Engine}
	for _, step := range []struct {
		facts attach.Facts
		want  []string
	}{
		{attach.Facts{}, nil},
		{attach.Facts{Up: true, Routes: []attach.Route{route}}, nil},
		{attach.Facts{Routes: []attach.Route{route}}, []string{"the interface net1 is down"}},
		{attach.Facts{Up: true}, []string{"the interface net1 has lost its route to 10.9.0.0/16"}},
		{attach.Facts{}, []string{"the interface net1 is down", "the interface net1 has lost its route to 10.9.0.0/16"}},
		{attach.Facts{Up: true, Routes: []attach.Route{route}}, nil},
	} {
		links.facts = step.facts
		found, err := w.Look(t.Context(), "pod-1")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range found {
			got = append(got, d.String())
		}
		same(t, step.want, got)
	}
	w.Keep(nil)
	links.facts = attach.Facts{}
	if found, err := w.Look(t.Context(), "pod-1"); len(found) > 0 || err != nil {
		t.Errorf("what was forgotten is missed: %v, %v", found, err)
	}
}
