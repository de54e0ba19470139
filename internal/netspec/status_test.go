package netspec

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestC1_5Entries(t *testing.T) {
	const two = `{"cniVersion": "1.1.0", "interfaces": [
		{"name": "br0", "mac": "0a:00:00:00:00:01"},
		{"name": "net1", "mac": "0a:00:00:00:00:02", "mtu": 9000, "sandbox": "/run/netns/x"},
		{"name": "net1.5", "mac": "0a:00:00:00:00:03", "sandbox": "/run/netns/x"}],
		"ips": [{"address": "10.0.0.1/24", "interface": 1}, {"address": "10.0.5.1/24", "gateway": "10.0.5.254", "interface": 2},
			{"address": "192.0.2.1/24", "interface": 0}, {"address": "fd00::5/64"}, {"address": "fd00::6/64", "interface": 9}],
		"dns": {"nameservers": ["10.0.0.53"], "domain": "a.example", "search": ["b.example"], "options": ["ndots:2"]}}`
	dns := DNS{Nameservers: []string{"10.0.0.53"}, Domain: "a.example", Search: []string{"b.example"}, Options: []string{"ndots:2"}}
	info := json.RawMessage(`{"type":"pci"}`)
	for _, tc := range []struct {
		name, result string
		options      EntryOptions
		want         []StatusEntry
	}{
		{
			"one entry an interface in the sandbox, default to the gateway's", two,
			EntryOptions{Default: true, Gateways: []netip.Addr{netip.MustParseAddr("10.0.5.254")}, DeviceInfo: info},
			[]StatusEntry{
				{Name: "ns/net", Interface: "net1", IPs: []string{"10.0.0.1"}, MAC: "0a:00:00:00:00:02", MTU: 9000, DNS: dns, DeviceInfo: info},
				{
					Name: "ns/net", Interface: "net1.5", IPs: []string{"10.0.5.1", "fd00::5", "fd00::6"}, MAC: "0a:00:00:00:00:03", Default: true, DNS: dns,
					DeviceInfo: info, Gateway: []string{"10.0.5.254"},
				},
			},
		},
		{"default to the first without a gateway", `{"cniVersion": "1.0.0", "interfaces": [{"name": "a", "sandbox": "/x"}, {"name": "b", "sandbox": "/x"}],
			"ips": [{"address": "10.0.0.1/24", "interface": 1}]}`, EntryOptions{Default: true}, []StatusEntry{
			{Name: "ns/net", Interface: "a", Default: true}, {Name: "ns/net", Interface: "b", IPs: []string{"10.0.0.1"}},
		}},
		{"not the default network", `{"cniVersion": "0.4.0", "interfaces": [{"name": "a", "sandbox": "/x"}],
			"ips": [{"version": "4", "address": "10.0.0.1/24", "gateway": "10.0.0.254", "interface": 0}]}`, EntryOptions{}, []StatusEntry{
			{Name: "ns/net", Interface: "a", IPs: []string{"10.0.0.1"}},
		}},
		{"no interface in a sandbox", `{"cniVersion": "0.3.1", "interfaces": [{"name": "cali1", "mac": "0a:00:00:00:00:01"}],
			"ips": [{"version": "4", "address": "10.0.0.1/32"}, {"version": "6", "address": "fd00::1/128", "interface": 0}]}`, EntryOptions{Default: true}, []StatusEntry{
			{Name: "ns/net", Interface: "eth7", IPs: []string{"10.0.0.1", "fd00::1"}, Default: true},
		}},
		{
			"the pod's interface without its sandbox", `{"cniVersion": "1.1.0", "interfaces": [{"name": "host"}, {"name": "eth7", "mac": "0a:00:00:00:00:01", "mtu": 1400}]}`,
			EntryOptions{},
			[]StatusEntry{{Name: "ns/net", Interface: "eth7", MAC: "0a:00:00:00:00:01", MTU: 1400}},
		},
		{
			"the form before 0.3", `{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.1/24", "gateway": "10.0.0.254", "routes": [{"dst": "0.0.0.0/0"}]}}`,
			EntryOptions{Default: true},
			[]StatusEntry{{Name: "ns/net", Interface: "eth7", IPs: []string{"10.0.0.1"}, Default: true, Gateway: []string{"10.0.0.254"}}},
		},
		{"an empty result", `{"cniVersion": "1.0.0"}`, EntryOptions{}, []StatusEntry{{Name: "ns/net", Interface: "eth7"}}},
		{"no result", ``, EntryOptions{}, []StatusEntry{{Name: "ns/net", Interface: "eth7"}}},
		{
			"gateways of the result's own default routes", `{"cniVersion": "1.0.0", "interfaces": [{"name": "a", "sandbox": "/x"}],
			"ips": [{"address": "fd00::5/64", "gateway": "fd00::1", "interface": 0}, {"address": "10.0.0.1/24", "gateway": "10.0.0.254", "interface": 0}],
			"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::0/0", "gw": "fd00::2"}, {"dst": "0.0.0.0/0", "gw": "10.0.0.254"},
				{"dst": "0.0.0.0/0", "gw": "10.0.0.9", "table": 100}, {"dst": "10.9.0.0/16", "gw": "10.0.0.8"}, {"dst": "0.0.0.0/1", "gw": "10.0.0.7"}]}`,
			EntryOptions{},
			[]StatusEntry{{Name: "ns/net", Interface: "a", IPs: []string{"fd00::5", "10.0.0.1"}, Gateway: []string{"10.0.0.254", "fd00::2"}}},
		},
		{
			"a default route that nobody gives a gateway", `{"cniVersion": "1.0.0", "interfaces": [{"name": "a", "sandbox": "/x"}], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}`,
			EntryOptions{},
			[]StatusEntry{{Name: "ns/net", Interface: "a"}},
		},
		{
			"gateways were taken away", `{"cniVersion": "1.0.0", "interfaces": [{"name": "a", "sandbox": "/x"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]}`,
			EntryOptions{Gateways: []netip.Addr{}},
			[]StatusEntry{{Name: "ns/net", Interface: "a"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Entries("ns/net", "eth7", json.RawMessage(tc.result), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := Entries("ns/net", "eth7", json.RawMessage(`{"cniVersion": "1.0.0", "ips": 5}`), EntryOptions{})
	const want = "the result of network ns/net cannot be read: json: cannot unmarshal number into Go struct field Result.ips of type []*types100.IPConfig"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The sample was written by v4: its text comes back but for the "<nil>" gateway.
func TestC1_20StatusWithoutNil(t *testing.T) {
	sample, err := os.ReadFile("testdata/v4-network-status.json")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := ParseStatus(string(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := []StatusEntry{
		{Name: "primary", Interface: "eth0", IPs: []string{"10.210.3.15"}, MAC: "4e:95:d8:1e:dc:d3", Default: true, Gateway: []string{}},
		{Name: "ns-a/net-a", Interface: "lan0", IPs: []string{"10.200.2.50"}, MAC: "6e:81:ab:cf:e9:fd"},
		{Name: "ns-a/net-b", Interface: "net2", IPs: []string{"10.9.0.7"}, MAC: "02:00:00:00:00:07"},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Error(diff)
	}
	text := strings.Replace(strings.TrimSpace(string(sample)), ",\n    \"gateway\": [\n        \"\\u003cnil\\u003e\"\n    ]", "", 1)
	if diff := cmp.Diff(text, FormatStatus(entries)); diff != "" {
		t.Error(diff)
	}
}

func TestC1_5StatusText(t *testing.T) {
	entries := []StatusEntry{{
		Name: "a<b>&c", Interface: "net1", IPs: []string{"::1"}, MTU: 1400, DNS: DNS{Domain: "x"},
		DeviceInfo: json.RawMessage(`{"type":"pci","n":9007199254740993}`), Gateway: []string{"fe80::1"},
	}, {Name: "b", DeviceInfo: json.RawMessage("{broken")}}
	const want = `[{
    "name": "a<b>&c",
    "interface": "net1",
    "ips": [
        "::1"
    ],
    "mtu": 1400,
    "dns": {
        "domain": "x"
    },
    "device-info": {
        "type": "pci",
        "n": 9007199254740993
    },
    "gateway": [
        "fe80::1"
    ]
},{
    "name": "b",
    "dns": {}
}]`
	if diff := cmp.Diff(want, FormatStatus(entries)); diff != "" {
		t.Error(diff)
	}
	if got := FormatStatus(nil); got != "[]" {
		t.Errorf("no entries print as %s, want []", got)
	}
	if got, err := ParseStatus(" "); got != nil || err != nil {
		t.Errorf("an empty annotation gives %v, %v", got, err)
	}
	_, err := ParseStatus(`{}`)
	const wantErr = "the network-status annotation is not a list of status entries: json: cannot unmarshal object into Go value of type []netspec.StatusEntry"
	if err == nil || err.Error() != wantErr {
		t.Errorf("got %v, want %s", err, wantErr)
	}
}
