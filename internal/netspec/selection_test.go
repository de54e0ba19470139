package netspec

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var compareAddr = cmpopts.EquateComparable(netip.Addr{})

func raws(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

func addrs(texts ...string) *[]netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParseAddr(s)
	}
	return &list
}

func TestC1_5BothForms(t *testing.T) {
	for _, tc := range []struct {
		name, annotation string
		want             []Selection
	}{
		{"empty", "", nil},
		{"whitespace", " \n\t", nil},
		{"empty list", " [] ", nil},
		{"comma list", "net-a, other/net-b@lan0 ,net.c@x", []Selection{
			{Name: "net-a", Namespace: "pods"},
			{Name: "net-b", Namespace: "other", Interface: "lan0"},
			{Name: "net.c", Namespace: "pods", Interface: "x"},
		}},
		{"spaces and empty parts, as v4 takes them", " /net-a , other / net-b @ lan0, net-c@", []Selection{
			{Name: "net-a", Namespace: "pods"},
			{Name: "net-b", Namespace: "other", Interface: "lan0"},
			{Name: "net-c", Namespace: "pods"},
		}},
		{"same network twice", "net-a,net-a", []Selection{{Name: "net-a", Namespace: "pods"}, {Name: "net-a", Namespace: "pods"}}},
		{"every key", `[{"name": "net.a", "namespace": "other", "interface": "lan0",
			"ips": ["10.1.2.3/24", "fd00::5"], "mac": "02:00:00:00:00:01", "infiniband-guid": "00:11:22:33:44:55:66:77",
			"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "10.0.0.1"}, {}],
			"bandwidth": {"ingressRate": 1, "ingressBurst": 2, "egressRate": 3, "egressBurst": 4},
			"deviceID": "0000:03:02.3", "cni-args": {"big": 9007199254740993, "tree": {"a": [ 1.50 ]}},
			"default-route": ["10.1.2.1", "fd00::1"], "ipam-claim-reference": "vm.net-a",
			"example.com/hint": {"x": 1.0}, "future": true}]`, []Selection{{
			Name: "net.a", Namespace: "other", Interface: "lan0",
			IPs: []string{"10.1.2.3/24", "fd00::5"}, MAC: "02:00:00:00:00:01", InfinibandGUID: "00:11:22:33:44:55:66:77",
			PortMappings: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "10.0.0.1"}, {}},
			Bandwidth:    &Bandwidth{IngressRate: 1, IngressBurst: 2, EgressRate: 3, EgressBurst: 4},
			DeviceID:     "0000:03:02.3", CNIArgs: raws("big", "9007199254740993", "tree", `{"a":[1.50]}`),
			DefaultRoute: addrs("10.1.2.1", "fd00::1"), IPAMClaimReference: "vm.net-a",
			Extensions: raws("example.com/hint", `{"x":1.0}`),
			Unknown:    []string{"future"},
		}}},
		{
			"null, empty and missing are the same", `[{"name": "net-a", "namespace": "", "interface": null, "mac": "", "infiniband-guid": "",
			"ips": [], "cni-args": {}, "portMappings": [], "bandwidth": null, "default-route": null}]`,
			[]Selection{{Name: "net-a", Namespace: "pods"}},
		},
		{
			"an empty default-route is kept", `[{"name": "net-a", "default-route": []}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", DefaultRoute: addrs()}},
		},
		{
			"a mapped IPv4 gateway is IPv4", `[{"name": "net-a", "default-route": ["::ffff:10.0.0.1"]}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", DefaultRoute: addrs("10.0.0.1")}},
		},
		{
			"keys in any case, the exact one first", `[{"NAME": "net-z", "name": "net-a", "Mac": "02:00:00:00:00:01", "Default-Route": []}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", MAC: "02:00:00:00:00:01", DefaultRoute: addrs()}},
		},
		{
			"the deprecated alias", `[{"name": "net-a", "interfaceRequest": "lan0"}, {"name": "net-b", "interface": "lan1", "interfaceRequest": "lan1"}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", Interface: "lan0"}, {Name: "net-b", Namespace: "pods", Interface: "lan1"}},
		},
		{
			"a gateway of each family in two elements", `[{"name": "net-a", "default-route": ["10.0.0.1"]}, {"name": "net-b", "default-route": ["fd00::1"]}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", DefaultRoute: addrs("10.0.0.1")}, {Name: "net-b", Namespace: "pods", DefaultRoute: addrs("fd00::1")}},
		},
		{
			"addresses beside an IPAM claim", `[{"name": "net-a", "ips": ["10.0.0.1"], "ipam-claim-reference": "c"}]`,
			[]Selection{{Name: "net-a", Namespace: "pods", IPs: []string{"10.0.0.1"}, IPAMClaimReference: "c"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := ParseSelections(tc.annotation, "pods")
			if diff := cmp.Diff(lines(problems), []string(nil)); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(tc.want, got, compareAddr); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func lines(problems []Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

// one is the problem of a selection element 1 of network pods/net-a.
func one(key, wrong, right string) Problem {
	return Problem{Element: 1, Network: "pods/net-a", Key: key, Wrong: wrong, Right: right}
}

func TestC1_5Problems(t *testing.T) {
	const key = AnnotationNetworks
	for _, tc := range []struct {
		name, annotation string
		want             []Problem
	}{
		{"a single object", `{"name": "net-a"}`, []Problem{{Key: key, Wrong: "found an object", Right: "the object inside a list: [{…}]"}}},
		{"a JSON text", `"net-a"`, []Problem{{Key: key, Wrong: `found the text "net-a"`, Right: rightList}}},
		{"broken JSON", `[{"name": "net-a"`, []Problem{{Key: key, Wrong: "is not valid JSON at byte 17: unexpected end of JSON input", Right: rightList}}},
		{"elements that are no objects", `["net-a", null, 7, [true]]`, []Problem{
			{Element: 1, Wrong: `found the text "net-a"`, Right: rightElement},
			{Element: 2, Wrong: "found null", Right: rightElement},
			{Element: 3, Wrong: "found the number 7", Right: rightElement},
			{Element: 4, Wrong: "found a list", Right: rightElement},
		}},
		{"comma list with a hole", "net-a,", []Problem{{Element: 2, Key: "name", Wrong: `found the text ""`, Right: rightName}}},
		{"comma list, all wrong at once", "Net_A,a/b/c,b@c@d,other.ns/x@lan0,x@averyveryverylong,x@a:b", []Problem{
			{Element: 1, Key: "name", Wrong: `found the text "Net_A"`, Right: rightName},
			{Element: 2, Key: "name", Wrong: `found the text "b/c"`, Right: rightName},
			{Element: 3, Key: "name", Wrong: `found the text "b@c"`, Right: rightName},
			{Element: 4, Key: "namespace", Wrong: `found the text "other.ns"`, Right: rightNamespace},
			{Element: 5, Network: "pods/x", Key: "interface", Wrong: `found the text "averyveryverylong"`, Right: rightInterface},
			{Element: 6, Network: "pods/x", Key: "interface", Wrong: `found the text "a:b"`, Right: rightInterface},
		}},
		{"no name", `[{}, {"name": null}, {"name": 5}]`, []Problem{
			{Element: 1, Key: "name", Wrong: "is missing", Right: rightName},
			{Element: 2, Key: "name", Wrong: "is missing", Right: rightName},
			{Element: 3, Key: "name", Wrong: "found the number 5", Right: rightName},
		}},
		{"every key of a wrong type", `[{"name": "net-a", "interface": 1, "interfaceRequest": {}, "ips": "10.0.0.1", "mac": 2, "infiniband-guid": [],
			"portMappings": {}, "bandwidth": "1M", "deviceID": 3, "cni-args": ["a"], "default-route": "10.0.0.1", "ipam-claim-reference": false}]`, []Problem{
			one("interface", "found the number 1", rightInterface),
			one("interfaceRequest", "found an object", rightInterface),
			one("ips", `found the text "10.0.0.1"`, "a list of IP addresses"),
			one("mac", "found the number 2", rightMAC),
			one("infiniband-guid", "found a list", rightGUID),
			one("portMappings", "found an object", "a list of objects"),
			one("bandwidth", `found the text "1M"`, rightObject),
			one("deviceID", "found the number 3", rightText),
			one("cni-args", "found a list", rightObject),
			one("default-route", `found the text "10.0.0.1"`, "a list of IP addresses"),
			one("ipam-claim-reference", "found false", rightText),
		}},
		{"wrong values", `[{"name": "net-a", "interface": "a/b", "mac": "zz", "infiniband-guid": "00:11:22:33:44:55",
			"ips": ["10.0.0.300", 5, "10.0.0.1/33", "fe80::1%eth0", "10.0.0.1"], "default-route": ["10.0.0.1/24", "", null, "fe80::1%eth0"]}]`, []Problem{
			one("interface", `found the text "a/b"`, rightInterface),
			one("ips", `found the text "10.0.0.300" as entry 1`, rightIP),
			one("ips", `found the number 5 as entry 2`, rightIP),
			one("ips", `found the text "10.0.0.1/33" as entry 3`, rightIP),
			one("ips", `found the text "fe80::1%eth0" as entry 4`, rightIP),
			one("mac", `found the text "zz"`, rightMAC),
			one("infiniband-guid", `found the text "00:11:22:33:44:55"`, rightGUID),
			one("default-route", `found the text "10.0.0.1/24" as entry 1`, rightGateway),
			one("default-route", `found the text "" as entry 2`, rightGateway),
			one("default-route", `found null as entry 3`, rightGateway),
			one("default-route", `found the text "fe80::1%eth0" as entry 4`, rightGateway),
		}},
		{"inside port mappings and bandwidth", `[{"name": "net-a", "portMappings": [{"hostPort": "80", "containerPort": 65536, "protocol": 6}, 7],
			"bandwidth": {"ingressRate": -1, "egressRate": 1.5, "egressBurst": "9"}}]`, []Problem{
			one("portMappings", `found the text "80" as "hostPort" of entry 1`, rightPort),
			one("portMappings", `found the number 65536 as "containerPort" of entry 1`, rightPort),
			one("portMappings", `found the number 6 as "protocol" of entry 1`, rightText),
			one("portMappings", `found the number 7 as entry 2`, `an object such as {"hostPort": 8080, "containerPort": 80}`),
			one("bandwidth", `found the number -1 as "ingressRate"`, rightRate),
			one("bandwidth", `found the number 1.5 as "egressRate"`, rightRate),
			one("bandwidth", `found the text "9" as "egressBurst"`, rightRate),
		}},
		{
			"interface and alias differ", `[{"name": "net-a", "interface": "x", "interfaceRequest": "y"}]`,
			[]Problem{one("interfaceRequest", `found "y", and "x" as "interface"`, `"interface" alone`)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := ParseSelections(tc.annotation, "pods")
			if diff := cmp.Diff(tc.want, problems); diff != "" {
				t.Error(diff)
			}
			for _, p := range problems {
				if p.Element > len(got) {
					t.Errorf("element %d has no selection among %d", p.Element, len(got))
				}
			}
		})
	}
}

func TestC1_5InterfaceNames(t *testing.T) {
	for name, want := range map[string]bool{
		"net1": true, "a23456789012345": true, "a2345678901234567": false, "UPPER_x.5": true,
		".": false, "..": false, "a b": false, "a/b": false, "a:b": false, "a\tb": false, "a\x00b": false, "": false,
	} {
		if got := isInterface(name); got != want {
			t.Errorf("isInterface(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestC1_5DefaultNetwork(t *testing.T) {
	for annotation, want := range map[string]Selection{
		"net-a":                           {Name: "net-a", Namespace: "kube-system"},
		"other/net-a@eth0":                {Name: "net-a", Namespace: "other", Interface: "eth0"},
		`[{"name": "a", "ips": ["::1"]}]`: {Name: "a", Namespace: "kube-system", IPs: []string{"::1"}},
	} {
		got, problems := ParseDefaultNetwork(annotation, "kube-system")
		if diff := cmp.Diff(want, got, compareAddr); diff != "" || problems != nil {
			t.Errorf("%s: %s %v", annotation, diff, problems)
		}
	}
	for annotation, want := range map[string]string{
		"":           `annotation "v1.multus-cni.io/default-network": found 0 networks; right would be exactly one network`,
		"a,b":        `annotation "v1.multus-cni.io/default-network": found 2 networks; right would be exactly one network`,
		`{"n": "a"}`: `annotation "v1.multus-cni.io/default-network": found an object; right would be the object inside a list: [{…}]`,
		`["a"]`:      `network selection element 1, annotation "v1.multus-cni.io/default-network": found the text "a"; right would be ` + rightElement,
		`[{"name": "a", "portMappings": [{"hostPort": true}]}]`: `network selection element 1, network kube-system/a, annotation "v1.multus-cni.io/default-network": found true as "hostPort" of entry 1 in key "portMappings"; right would be ` + rightPort,
	} {
		got, problems := ParseDefaultNetwork(annotation, "kube-system")
		if diff := cmp.Diff([]string{want}, lines(problems)); diff != "" {
			t.Errorf("%s: %s", annotation, diff)
		}
		if diff := cmp.Diff(Selection{}, got, compareAddr); diff != "" {
			t.Errorf("%s: a selection beside the problem: %s", annotation, diff)
		}
	}
}

func TestI2_FoundIsOneShortLine(t *testing.T) {
	for raw, want := range map[string]string{
		``: "nothing", ` {"a":1}`: "an object", `[1]`: "a list", `true`: "true", `null`: "null", `-1.5e3`: "the number -1.5e3",
		`"a\nb"`:                             `the text "a\nb"`,
		`"` + strings.Repeat("é", 100) + `"`: `the text "` + strings.Repeat("é", 60) + `…"`,
		strings.Repeat("9", 100):             "the number " + strings.Repeat("9", 60) + "…",
	} {
		if got := Found(json.RawMessage(raw)); got != want {
			t.Errorf("Found(%s) = %s, want %s", raw, got, want)
		}
	}
}

// print is the JSON form of selections, with their extensions.
func print(t *testing.T, selections []Selection) string {
	elements := []map[string]json.RawMessage{}
	for _, s := range selections {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var element map[string]json.RawMessage
		if err := json.Unmarshal(raw, &element); err != nil {
			t.Fatal(err)
		}
		for key, value := range s.Extensions {
			element[key] = value
		}
		elements = append(elements, element)
	}
	raw, err := json.Marshal(elements)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func FuzzParseSelections(f *testing.F) {
	for _, seed := range []string{
		"", "net-a", "a,b/c@d, e.f", "a,", `{"name":"a"}`, `[{"name":"a"}]`, `["a"]`, "[", `[{"NAME":"a","name":null}]`,
		`[{"name":"a","ips":["10.0.0.1/24","::ffff:1.2.3.4/120"],"mac":"0200.0000.0001","default-route":["::1","10.0.0.1"]}]`,
		`[{"name":"a","cni-args":{"n":9007199254740993,"<":"\u2028"},"x.y/z":{"a": 1},"bandwidth":{}}]`,
		`[{"name":"a","portMappings":[{"hostPort":1,"containerPort":2,"protocol":"\ud800"}],"default-route":[]}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		got, problems := ParseSelections(annotation, "pods")
		for _, p := range problems {
			if line := p.String(); strings.ContainsAny(line, "\n\r") || len(line) > 2000 {
				t.Errorf("not one short line: %q", line)
			}
		}
		if len(problems) > 0 {
			return
		}
		printed := print(t, got)
		again, problems := ParseSelections(printed, "elsewhere")
		if len(problems) > 0 {
			t.Fatalf("%s does not parse again: %v", printed, lines(problems))
		}
		if diff := cmp.Diff(print(t, got), print(t, again)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestR5NumberOfNetworks(t *testing.T) {
	if all, problems := ParseSelections(strings.TrimSuffix(strings.Repeat("a,", 256), ","), "ns"); len(all) != 256 || problems != nil {
		t.Errorf("256: got %d and %v", len(all), problems)
	}
	all, problems := ParseSelections("["+strings.Repeat("{},", 256)+"{}]", "ns")
	want := []Problem{{Key: AnnotationNetworks, Wrong: "found 257 networks", Right: "at most 256"}}
	if diff := cmp.Diff(want, problems); all != nil || diff != "" {
		t.Errorf("257: got %v and (-want +got):\n%s", all, diff)
	}
}

// TestC1_5InterfaceNameOfAPattern: the kernel would give the interface another name.
func TestC1_5InterfaceNameOfAPattern(t *testing.T) {
	if _, problems := ParseSelections("a@net%d", "ns"); len(problems) != 1 {
		t.Errorf("got %v, want a problem", problems)
	}
}

// TestI5_OptionalIsTrueOrFalse, and what is written otherwise is told apart.
func TestI5_OptionalIsTrueOrFalse(t *testing.T) {
	for value, want := range map[string][2]bool{"": {false, true}, "true": {true, true}, "false": {false, true}, "null": {false, true}, `"yes"`: {false, false}, "1": {false, false}} {
		annotation := `[{"name":"a"}]`
		if value != "" {
			annotation = `[{"name":"a","io.multus.optional":` + value + `}]`
		}
		all, problems := ParseSelections(annotation, "ns")
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		optional, ok := all[0].Optional()
		if got := [2]bool{optional, ok}; got != want {
			t.Errorf("%s: got %v, want %v", value, got, want)
		}
	}
}

func TestI5_AsksTheSame(t *testing.T) {
	const base = `{"name":"a","ips":["10.0.0.1"],"default-route":[],"cni-args":{"k":{"n":1.0}}}`
	for other, want := range map[string]bool{
		base: true,
		`{"cni-args":{"k":{"n": 1.0}},"default-route":[],"ips":["10.0.0.1"],"name":"a","interface":"x","x.y":1,"z":2}`: true,
		`{"name":"a","ips":["10.0.0.2"],"default-route":[],"cni-args":{"k":{"n":1.0}}}`:                                false,
		`{"name":"a","ips":["10.0.0.1"],"cni-args":{"k":{"n":1.0}}}`:                                                   false,
		`{"name":"a","ips":["10.0.0.1"],"default-route":[],"cni-args":{"k":{"n":1.1}}}`:                                false,
		`{"name":"b","ips":["10.0.0.1"],"default-route":[],"cni-args":{"k":{"n":1.0}}}`:                                false,
	} {
		all, problems := ParseSelections("["+base+","+other+"]", "ns")
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if got := all[0].AsksTheSame(all[1]); got != want {
			t.Errorf("%s: %v", other, got)
		}
	}
}
