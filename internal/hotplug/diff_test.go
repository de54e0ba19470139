package hotplug

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// selected reads an annotation of a pod in ns.
func selected(t *testing.T, annotation string) []netspec.Selection {
	t.Helper()
	all, problems := netspec.ParseSelections(annotation, "ns")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return all
}

// recordOf makes a record with the primary network and secondary ones, each written
// "name@interface element": the element is what it was made for, absent where it is not
// known; "!" before the name means that its ADD did not end, "~" that /delegate made it.
func recordOf(t *testing.T, attachments ...string) attach.Record {
	t.Helper()
	rec := attach.Record{State: attach.Attached, Sandbox: attach.Sandbox{ContainerID: "c1", NetNS: "/ns/c1"}}
	add := func(a plan.Attachment, network string, result json.RawMessage) {
		var err error
		if a.Config, err = cniconf.Parse([]byte(fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"fake"}`, network))); err != nil {
			t.Fatal(err)
		}
		rec.Plan.Attachments, rec.Outcomes = append(rec.Plan.Attachments, a), append(rec.Outcomes, attach.Outcome{Result: result})
	}
	result := json.RawMessage(`{}`)
	add(plan.Attachment{Role: plan.Primary, Network: "primary", Interface: "eth0"}, "primary", result)
	for _, text := range attachments {
		place, element, given := strings.Cut(text, " ")
		network, ifName, _ := strings.Cut(strings.TrimLeft(place, "!~"), "@")
		a := plan.Attachment{Role: plan.Secondary, Network: "ns/" + network, Interface: ifName}
		if given {
			a.Selected = &selected(t, element)[0]
		}
		switch text[0] {
		case '!':
			add(a, network, nil)
		case '~':
			a.Role, a.Network = plan.Plugged, network
			add(a, network, result)
		default:
			add(a, network, result)
		}
	}
	return rec
}

// said is a change in short: "-net1", "+2 ns/b@net5", "?3 …".
func said(c Change) (all []string) {
	for _, a := range c.Detach {
		all = append(all, "-"+a.Interface)
	}
	for _, j := range c.Attach {
		all = append(all, fmt.Sprintf("+%d %s@%s", j.Element, j.Ref(), j.Interface))
	}
	for _, p := range c.Wrong {
		all = append(all, fmt.Sprintf("?%d %s", p.Element, p.Wrong))
	}
	return all
}

func TestI5_Diff(t *testing.T) {
	made := func(network string, n int) string { return madeName(netspec.Ref{Namespace: "ns", Name: network}, n) }
	for name, c := range map[string]struct {
		annotation string
		has        []string
		want       []string
	}{
		"nothing and nothing":               {"", nil, nil},
		"as it was made":                    {"a,b", []string{"a@net1 a", "b@net2 b"}, nil},
		"in another order":                  {"b,a", []string{"a@net1 a", "b@net2 b"}, nil},
		"all gone":                          {"", []string{"a@net1 a", "b@net2 b"}, []string{"-net2", "-net1"}},
		"one gone, the others keep":         {"b", []string{"a@net1 a", "b@net2 b"}, []string{"-net1"}},
		"one more, with a name":             {"a,c@hot0", []string{"a@net1 a"}, []string{"+2 ns/c@hot0"}},
		"one more, without":                 {"a,c", []string{"a@net1 a"}, []string{"+2 ns/c@" + made("c", 0)}},
		"its name, whatever else is there":  {"c", []string{"a@net1 a"}, []string{"-net1", "+1 ns/c@" + made("c", 0)}},
		"two more of one network":           {"c,c", nil, []string{"+1 ns/c@" + made("c", 0), "+2 ns/c@" + made("c", 1)}},
		"the second of a network":           {"c,c", []string{"c@" + made("c", 0) + " c"}, []string{"+2 ns/c@" + made("c", 1)}},
		"the first of two went":             {"c", []string{"c@" + made("c", 0) + " c", "c@" + made("c", 1) + " c"}, []string{"-" + made("c", 1)}},
		"of two that differ, the right one": {`[{"name":"c","mac":"02:00:00:00:00:02"}]`, []string{`c@x1 [{"name":"c","mac":"02:00:00:00:00:01"}]`, `c@x2 [{"name":"c","mac":"02:00:00:00:00:02"}]`}, []string{"-x1"}},
		"the interface has another name":    {"a@new", []string{"a@old a@old"}, []string{"-old", "+1 ns/a@new"}},
		"it is named as it was made":        {"a@net1", []string{"a@net1 a"}, nil},
		"the name is left open now":         {"a", []string{"a@old a@old"}, nil},
		"open ones keep what was open":      {"a,a@old", []string{"a@old a@old", "a@net2 a"}, nil},
		"an open one has what was open":     {"a", []string{"a@old a@old", "a@net2 a"}, []string{"-old"}},
		"another network under the name":    {"b@lan0", []string{"a@lan0 a@lan0"}, []string{"-lan0", "+1 ns/b@lan0"}},
		"two change places":                 {"b@x1,a@x2", []string{"a@x1 a@x1", "b@x2 b@x2"}, []string{"-x2", "-x1", "+1 ns/b@x1", "+2 ns/a@x2"}},
		"it asks for another address":       {`[{"name":"a","ips":["10.0.0.2"]}]`, []string{`a@net1 [{"name":"a","ips":["10.0.0.1"]}]`}, []string{"-net1", "+1 ns/a@net1"}},
		"it asks for the same":              {`[{"name":"a","ips":["10.0.0.1"],"namespace":"ns","cni-args":{"k":1.0}}]`, []string{`a@net1 [{"cni-args": {"k": 1.0},"ips":["10.0.0.1"],"name":"a"}]`}, nil},
		"an extension is no request":        {`[{"name":"a","io.multus.optional":true}]`, []string{"a@net1 a"}, nil},
		"made before elements were kept":    {`[{"name":"a","ips":["10.0.0.1"]},{"name":"b"}]`, []string{"a@net1"}, []string{"+2 ns/b@" + made("b", 0)}},
		"an ADD that did not end":           {"a", []string{"!a@net1 a"}, []string{"-net1", "+1 ns/a@net1"}},
		"one that nobody wants any more":    {"", []string{"!a@net1 a"}, []string{"-net1"}},
		"what /delegate made stays":         {"", []string{"~hot@hot0"}, nil},
		"what /delegate made is there":      {"a@hot0", []string{"~a@hot0"}, nil},
		"an open name is not /delegate's":   {"a", []string{"~a@hot0"}, []string{"+1 ns/a@" + made("a", 0)}},
		"a name twice":                      {"a@x,b@x", nil, []string{"+1 ns/a@x", `?2 the interface name "x" is already that of another network`}},
		"loopback's name":                   {"a@lo", nil, []string{`?1 the interface name "lo" is already that of another network`}},
		"a made name that is taken":         {"c,b@" + made("c", 0), nil, []string{"+1 ns/c@" + made("c", 1), "+2 ns/b@" + made("c", 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, said(Diff(selected(t, c.annotation), recordOf(t, c.has...)))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Results that v4 did not keep are no unfinished ADDs.
func TestR9DiffOfWhatV4Attached(t *testing.T) {
	rec := recordOf(t, "!a@net1", "!b@net2")
	rec.Origin, rec.Outcomes = attach.FromV4, nil
	if diff := cmp.Diff([]string{"-net2"}, said(Diff(selected(t, "a"), rec))); diff != "" {
		t.Error(diff)
	}
	rec.Plan.Attachments[2].Network = "b"
	if got := unknown(rec); got != "b" {
		t.Errorf("unknown: %q", got)
	}
}

// The made name is part of what users rely on.
func TestI5_MadeName(t *testing.T) {
	got := []string{madeName(netspec.Ref{Namespace: "default", Name: "lan"}, 0), madeName(netspec.Ref{Namespace: "default", Name: "lan"}, 1)}
	if diff := cmp.Diff([]string{"net1846ec941e", "net5d44f4ced7"}, got); diff != "" {
		t.Error(diff)
	}
}
