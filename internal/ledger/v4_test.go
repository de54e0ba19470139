package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// scratch is a record as Multus v4 declares it (contract 1.9): the keys, the types
// of libcni, and Go's way of matching keys in any case.
type scratch struct {
	Conf            types.NetConf
	ConfList        types.NetConfList
	Name            string
	IfnameRequest   string    `json:"ifnameRequest,omitempty"`
	MacRequest      string    `json:"macRequest,omitempty"`
	GUIDRequest     string    `json:"infinibandGUIDRequest,omitempty"`
	IPRequest       []string  `json:"ipRequest,omitempty"`
	GatewayRequest  *[]net.IP `json:"default-route,omitempty"`
	FilterV4Gateway bool      `json:"IsFilterV4Gateway"`
	FilterV6Gateway bool      `json:"IsFilterV6Gateway"`
	DeviceID        string    `json:"deviceID,omitempty"`
	ResourceName    string    `json:"resourceName,omitempty"`
	Bytes           []byte
}

// What we write, v4 reads as if it had written it: a node can be taken back.
func TestC1_9V4ReadsOurFile(t *testing.T) {
	l := ledger(t)
	r := record(t)
	save(t, l, r)
	var got []scratch
	if err := json.Unmarshal(content(t, filepath.Join(l.dir, id)), &got); err != nil {
		t.Fatal(err)
	}
	want := []scratch{
		{
			ConfList: types.NetConfList{CNIVersion: "1.0.0", Name: "primary", Plugins: []*types.NetConf{
				{Type: "bridge", Capabilities: map[string]bool{"ips": true}}, {Type: "tuning"},
			}},
			Name: "primary", IfnameRequest: "eth0", FilterV4Gateway: true, FilterV6Gateway: true, Bytes: r.Plan.Attachments[0].Config.Bytes(),
		},
		{
			Conf: types.NetConf{CNIVersion: "0.1.0", Name: "net-a", Type: "sriov"}, Name: "ns/net-a", IfnameRequest: "net1",
			MacRequest: "02:00:00:00:00:01", GUIDRequest: "24:8a:07:03:00:8d:ae:2e", IPRequest: []string{"10.0.0.7/24", "fd00::7/64"},
			GatewayRequest: &[]net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")}, DeviceID: "0000:01:00.0", ResourceName: "vendor.com/vf",
			Bytes: r.Plan.Attachments[1].Config.Bytes(),
		},
		{
			Conf: types.NetConf{CNIVersion: "0.1.0", Name: "net-a", Type: "x"}, Name: "ns/net-a", IfnameRequest: "net7",
			GatewayRequest: &[]net.IP{}, Bytes: r.Plan.Attachments[2].Config.Bytes(),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	for _, s := range got { // as v4 does with them
		if s.ConfList.Name != "" {
			if _, err := libcni.NetworkConfFromBytes(s.Bytes); err != nil {
				t.Error(err)
			}
		} else if _, err := libcni.NetworkPluginConfFromBytes(s.Bytes); err != nil {
			t.Error(err)
		}
	}
}

// Our key in the first element must not be taken for one of v4's, whatever its case.
func TestC1_9OurKeyIsNobodysInV4(t *testing.T) {
	var elements []map[string]json.RawMessage
	l := ledger(t)
	save(t, l, record(t))
	if err := json.Unmarshal(content(t, filepath.Join(l.dir, id)), &elements); err != nil {
		t.Fatal(err)
	}
	var extra []string
	known := []string{"Conf", "ConfList", "Name", "ifnameRequest", "macRequest", "infinibandGUIDRequest", "ipRequest", "default-route", "IsFilterV4Gateway", "IsFilterV6Gateway", "deviceID", "resourceName", "Bytes"}
	for i, e := range elements {
		for key := range e {
			if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
				extra = append(extra, fmt.Sprint(i, " ", key))
			}
		}
	}
	if !slices.Equal(extra, []string{"0 io.multus.ledger"}) {
		t.Errorf("keys that v4 does not know: %q", extra)
	}
}

const (
	v4ID     = "pod-a000000000000000000000000000000000000000000000000000000000000"
	v4NetA   = `{"args":{"cni":{"k":"v"}},"bridge":"brA","cniVersion":"1.0.0","extra":{"big":9007199254740992},"ipam":{"dataDir":"/var/lib/cni/networks","ranges":[[{"subnet":"10.200.0.0/16"}]],"type":"host-local"},"name":"net-a","type":"bridge"}`
	v4NetB   = `{"cniVersion":"1.0.0","name":"net-b","vendorKey":"kept","plugins":[{"type":"bridge","bridge":"brB","capabilities":{"mac":true,"ips":true},"ipam":{"type":"static"}},{"type":"tuning","capabilities":{"mac":true},"note":"second"}]}`
	v4Cached = `{"cniVersion":"1.0.0","name":"primary","plugins":[{"type":"bridge","bridge":"cni0","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks","ranges":[[{"subnet":"10.210.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
	// v4 wrote the same with its keys sorted
	v4Scratch = `{"cniVersion":"1.0.0","name":"primary","plugins":[{"bridge":"cni0","ipam":{"dataDir":"/var/lib/cni/networks","ranges":[[{"subnet":"10.210.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},"type":"bridge"}]}`
)

var (
	v4Args = []plan.Arg{
		{"IgnoreUnknown", "true"},
		{"K8S_POD_NAMESPACE", "ns-a"},
		{"K8S_POD_NAME", "pod-a-0"},
		{"K8S_POD_INFRA_CONTAINER_ID", v4ID},
		{"K8S_POD_UID", "78c24384-985d-46f6-bc97-bb4eb5d34593"},
	}
	v4Request  = plan.Request{MAC: "02:00:00:00:00:07", IPs: []string{"10.9.0.7/24"}}
	v4NetBArgs = []plan.Arg{{"MAC", "02:00:00:00:00:07"}, {"IP", "10.9.0.7/24"}}
	v4NetBCaps = map[string]json.RawMessage{"ips": json.RawMessage(`["10.9.0.7/24"]`), "mac": json.RawMessage(`"02:00:00:00:00:07"`)}
	v4Results  = []json.RawMessage{
		json.RawMessage(`{"cniVersion": "1.0.0", "interfaces": [{"mac": "4e:ba:35:1e:76:6b", "name": "cni0"}, {"mac": "4e:ba:35:1e:76:6b", "name": "vethefb52eb1"}, {"mac": "4e:95:d8:1e:dc:d3", "name": "eth0", "sandbox": "/var/run/netns/pod-a-0"}], "ips": [{"address": "10.210.3.15/16", "gateway": "10.210.0.1", "interface": 2}], "routes": [{"dst": "0.0.0.0/0"}]}`),
		json.RawMessage(`{"cniVersion": "1.0.0", "interfaces": [{"mac": "f2:75:24:3f:bb:b6", "name": "brA"}, {"mac": "f2:75:24:3f:bb:b6", "name": "vethdcef8ecf"}, {"mac": "6e:81:ab:cf:e9:fd", "name": "lan0", "sandbox": "/var/run/netns/pod-a-0"}], "ips": [{"address": "10.200.2.50/16", "gateway": "10.200.0.1", "interface": 2}]}`),
		json.RawMessage(`{"cniVersion": "1.0.0", "interfaces": [{"mac": "de:ad:e5:ce:b5:fb", "name": "brB"}, {"mac": "de:ad:e5:ce:b5:fb", "name": "veth363f2e9c"}, {"mac": "02:00:00:00:00:07", "name": "net2", "sandbox": "/var/run/netns/pod-a-0"}], "ips": [{"address": "10.9.0.7/24", "interface": 2}]}`),
	}
)

// fromCache is the record of the fixture as libcni's cache completes it.
func fromCache(t testing.TB) attach.Record {
	return attach.Record{
		State: attach.Attached, Origin: attach.FromV4, Sandbox: attach.Sandbox{ContainerID: v4ID, NetNS: "/var/run/netns/pod-a-0"},
		Plan: plan.Plan{
			Version: plan.Version, Pod: plan.Pod{Namespace: "ns-a", Name: "pod-a-0", UID: "78c24384-985d-46f6-bc97-bb4eb5d34593"},
			Attachments: []plan.Attachment{
				{Role: plan.Primary, Network: "primary", Interface: "eth0", Config: config(t, v4Cached), Args: v4Args},
				{Role: plan.Secondary, Network: "ns-a/net-a", Interface: "lan0", Config: config(t, v4NetA), Args: v4Args},
				{
					Role: plan.Secondary, Network: "ns-a/net-b", Interface: "net2", Config: config(t, v4NetB), Args: slices.Concat(v4Args, v4NetBArgs),
					CapabilityArgs: v4NetBCaps, Request: v4Request,
				},
			},
		},
		Outcomes: []attach.Outcome{{Result: v4Results[0]}, {Result: v4Results[1]}, {Result: v4Results[2]}},
	}
}

// v4Node is a ledger with the fixture.
func v4Node(t testing.TB) *Ledger {
	t.Helper()
	l := New(filepath.Join(t.TempDir(), "multus"), "boot-1")
	if err := os.CopyFS(l.dir, os.DirFS("testdata/v4-state")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, "README.md")); err != nil {
		t.Fatal(err)
	}
	return l
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *Ledger) result(network, ifName string) string {
	return filepath.Join(l.dir, resultsDir, network+"-"+v4ID+"-"+ifName)
}

// Of each attachment libcni's cache goes first, v4's scratch record second.
func TestC1_20SandboxOfV4(t *testing.T) {
	scratchArgs := []plan.Arg{{"IgnoreUnknown", "true"}, {"K8S_POD_INFRA_CONTAINER_ID", v4ID}}
	none := map[string]json.RawMessage{}
	l, want := v4Node(t), fromCache(t)
	same(t, want, load(t, l, v4ID))
	if ids, err := l.Sandboxes(); err != nil || !slices.Equal(ids, []string{v4ID}) {
		t.Errorf("list gives %q, %v", ids, err)
	}

	remove(t, l.result("net-a", "lan0"))
	a := &want.Plan.Attachments[1]
	a.Args, a.CapabilityArgs, want.Outcomes[1] = scratchArgs, none, attach.Outcome{}
	same(t, want, load(t, l, v4ID))

	write(t, l.result("primary", "eth0"), []byte("{"))
	a = &want.Plan.Attachments[0]
	a.Interface, a.Config, a.Args, a.CapabilityArgs, want.Outcomes[0] = "", config(t, v4Scratch), scratchArgs, none, attach.Outcome{}
	same(t, want, load(t, l, v4ID))

	remove(t, l.result("net-b", "net2"))
	a = &want.Plan.Attachments[2]
	a.Args, want.Outcomes[2], want.Sandbox.NetNS, want.Plan.Pod = slices.Concat(scratchArgs, v4NetBArgs), attach.Outcome{}, "", plan.Pod{}
	same(t, want, load(t, l, v4ID))

	if err := os.RemoveAll(filepath.Join(l.dir, resultsDir)); err != nil {
		t.Fatal(err)
	}
	same(t, want, load(t, l, v4ID))
	if err := l.Remove(v4ID); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Load(v4ID); !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("after Remove, Load gives %v", err)
	}
}

// A sandbox whose scratch file is gone or damaged, with what the cache tells.
func TestC1_20SandboxInTheCacheAlone(t *testing.T) {
	l := v4Node(t)
	write(t, filepath.Join(l.dir, v4ID), []byte("{"))
	damaged(t, l, v4ID)
	if err := l.SetAside(v4ID); err != nil {
		t.Fatal(err)
	}
	want := fromCache(t)
	want.Origin = attach.Cache
	want.Plan.Attachments[1].Network, want.Plan.Attachments[2].Network, want.Plan.Attachments[2].Request = "net-a", "net-b", plan.Request{}
	same(t, want, load(t, l, v4ID))
	if ids, err := l.Sandboxes(); err != nil || len(ids) != 0 {
		t.Errorf("list gives %q, %v", ids, err)
	}
	if err := l.Remove(v4ID); err != nil {
		t.Fatal(err)
	}
	if left := files(t, filepath.Join(l.dir, resultsDir)); len(left) != 0 {
		t.Errorf("Remove left %q", left)
	}
	if _, err := l.Load(v4ID); !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("after Remove, Load gives %v", err)
	}
}

// With a record goes what libcni cached of its attachments, and of no others.
func TestC1_20RemoveTakesTheResultsAlong(t *testing.T) {
	l := v4Node(t)
	entry(t, l, "n-"+id+"-eth0", nil)
	if err := l.Remove(v4ID); err != nil {
		t.Fatal(err)
	}
	if got, want := files(t, l.dir), []string{"results/n-" + id + "-eth0"}; !slices.Equal(got, want) {
		t.Errorf("Remove left %q, want %q", got, want)
	}
}

// entry is a file of libcni's cache.
func entry(t testing.TB, l *Ledger, file string, fields map[string]any) {
	t.Helper()
	all := map[string]any{"kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "n", "config": []byte(`{"name":"n","type":"x"}`), "result": map[string]any{}}
	for key, value := range fields {
		all[key] = value
	}
	write(t, filepath.Join(l.dir, resultsDir, file), cniconf.Quote(all))
}

func TestR15CacheFilesThatAreNoEvidence(t *testing.T) {
	for name, fields := range map[string]map[string]any{
		"another sandbox":  {"containerId": "x-" + id + "-x"},
		"another kind":     {"kind": "cniCacheV2"},
		"no interface":     {"ifName": ""},
		"no network":       {"networkName": ""},
		"no configuration": {"config": nil},
		"half of one":      {"config": []byte(`{"name":"n"`)},
		"wrong type":       {"cniArgs": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger(t)
			entry(t, l, "n-"+id+"-eth0", fields)
			if r, err := l.Load(id); !errors.Is(err, attach.ErrNoRecord) {
				t.Errorf("Load gives %+v, %v", r, err)
			}
			if err := l.Remove(id); err != nil {
				t.Fatal(err)
			}
			if left := files(t, l.dir); len(left) != 1 {
				t.Errorf("Remove took what may be another's: %q is left", left)
			}
		})
	}
}

// The primary network comes first, a network without a name gets the cache's, and a
// result that is null is none. Ids, networks and interfaces may hold dashes.
func TestR15CacheAlone(t *testing.T) {
	l := ledger(t)
	entry(t, l, "b-"+id+"-a-0", map[string]any{"netns": "/n", "ifName": "a-0", "networkName": "b", "config": []byte(`{"type":"x"}`), "result": nil})
	entry(t, l, "n-"+id+"-eth0", map[string]any{"netns": "/n"})
	entry(t, l, "n-x-"+id+"-eth0", map[string]any{"containerId": "x-" + id})
	same(t, attach.Record{
		State: attach.Attached, Origin: attach.Cache, Sandbox: attach.Sandbox{ContainerID: id, NetNS: "/n"},
		Plan: plan.Plan{Version: plan.Version, Attachments: []plan.Attachment{
			{Role: plan.Primary, Network: "n", Interface: "eth0", Config: config(t, `{"name":"n","type":"x"}`)},
			{Role: plan.Secondary, Network: "b", Interface: "a-0", Config: config(t, `{"type":"x","name":"b"}`)},
		}},
		Outcomes: []attach.Outcome{{Result: json.RawMessage(`{}`)}, {}},
	}, load(t, l, id))
}

// The primary's cache file is gone, and its network is attached a second time: the
// second's must not stand for both.
func TestC1_20PrimaryIsNotItsOwnSecondary(t *testing.T) {
	l := ledger(t)
	write(t, filepath.Join(l.dir, id), cniconf.Quote([]scratch{
		{Name: "n", Bytes: []byte(`{"name":"n","type":"x"}`)}, {Name: "ns/n", Bytes: []byte(`{"name":"n","type":"x"}`)},
	}))
	entry(t, l, "n-"+id+"-net1", map[string]any{"ifName": "net1"})
	var got []string
	for _, a := range load(t, l, id).Plan.Attachments {
		got = append(got, string(a.Role)+" "+a.Network+" "+a.Interface)
	}
	if want := []string{"primary n ", "secondary ns/n net1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	entry(t, l, "n-"+id+"-ens3", map[string]any{"ifName": "ens3"}) // CNI_IFNAME need not be eth0
	if got := load(t, l, id).Plan.Attachments; len(got) != 2 || got[0].Interface != "ens3" {
		t.Errorf("the primary network's interface is %q of %d", got[0].Interface, len(got))
	}
}

// v4 never records what its /delegate attaches: the cache tells.
func TestC1_18HotPlugOfV4IsFound(t *testing.T) {
	l := v4Node(t)
	hot, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": v4ID, "ifName": "net9", "networkName": "hot", "netns": "/var/run/netns/pod-a-0",
		"config": []byte(`{"name":"hot","type":"macvlan"}`), "cniArgs": v4Args, "result": map[string]any{"cniVersion": "0.3.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, l.result("hot", "net9"), hot)
	want := fromCache(t)
	want.Plan.Attachments = append(want.Plan.Attachments, plan.Attachment{Role: plan.Secondary, Network: "hot", Interface: "net9", Config: config(t, `{"name":"hot","type":"macvlan"}`), Args: v4Args})
	want.Outcomes = append(want.Outcomes, attach.Outcome{Result: json.RawMessage(`{"cniVersion":"0.3.1"}`)})
	same(t, want, load(t, l, v4ID))
}

// What DEL could not finish of v4's sandbox is ours from then on, and complete.
func TestR9SandboxOfV4BecomesOurs(t *testing.T) {
	l, r := v4Node(t), fromCache(t)
	r.State, r.Outcomes[2].Detached = attach.Detaching, true
	save(t, l, r)
	remove(t, l.result("net-a", "lan0"), l.result("primary", "eth0"))
	for i, o := range r.Outcomes { // a result is stored as compact JSON
		obj, err := cniconf.ParseObject(o.Result)
		if err != nil {
			t.Fatal(err)
		}
		r.Outcomes[i].Result = obj.Bytes()
	}
	r.Origin = attach.Ours
	same(t, r, load(t, l, v4ID))
}

// 300 000 results of other sandboxes cost names alone: no file of another is opened.
func TestR15CrowdedCache(t *testing.T) {
	dir := tmpfs(t, "size=1g,nr_inodes=400k")
	results := filepath.Join(dir, resultsDir)
	if err := os.Mkdir(results, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 300_000 {
		if err := unix.Mknod(fmt.Sprintf("%s/net-%064x-eth0", results, i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	l := New(dir, "boot")
	entry(t, l, "n-"+id+"-eth0", nil)
	write(t, filepath.Join(dir, v4ID), content(t, filepath.Join("testdata/v4-state", v4ID)))
	opens := check.Opens(t, results)

	r, err := l.Load(id)
	_, none := l.Load("unknown")
	v4, err2 := l.Load(v4ID)
	ids, err3 := l.Sandboxes()
	unfinished, err4 := l.Unfinished()
	if errors.Join(err, err2, err3, err4) != nil || !errors.Is(none, attach.ErrNoRecord) || len(r.Plan.Attachments) != 1 || len(v4.Plan.Attachments) != 3 ||
		!slices.Equal(ids, []string{v4ID}) || len(unfinished) != 0 {
		t.Fatalf("%v %v %v %v %v; %d and %d attachments, %q, %q", err, none, err2, err3, err4, len(r.Plan.Attachments), len(v4.Plan.Attachments), ids, unfinished)
	}
	opened := slices.DeleteFunc(opens(), func(name string) bool { return name == "" })
	if got, want := opened, []string{"n-" + id + "-eth0"}; !slices.Equal(got, want) {
		t.Errorf("%d files of the cache were opened, such as %q; want %q", len(got), got[:min(len(got), 3)], want)
	}
}

// A pass over all records reads no more than there is to read, however many of v4 are
// among them: each result that is somebody's once, and the folder once or, where all
// records are ours, not at all.
func TestR15OnePassOverTheCache(t *testing.T) {
	const sandboxes = 50
	for name, v4 := range map[string]int{"all of v4": sandboxes, "some of v4": 3, "all ours": 0} {
		t.Run(name, func(t *testing.T) {
			l := New(t.TempDir(), "boot")
			var want []attach.Listed
			var opened []string
			for i := range sandboxes {
				id := fmt.Sprintf("sb-%02d-x", i) // dashes are legal
				file := "n-a-" + id + "-net-1"
				entry(t, l, file, map[string]any{"containerId": id, "networkName": "n-a", "ifName": "net-1"})
				entry(t, l, "n-a-gone-"+id+"-eth0", map[string]any{"containerId": "gone"})
				if i < v4 {
					write(t, filepath.Join(l.dir, id), content(t, filepath.Join("testdata/v4-state", v4ID)))
					opened = append(opened, file, "n-a-gone-"+id+"-eth0")
				} else {
					ours := record(t)
					ours.Sandbox.ContainerID = id
					save(t, l, ours)
				}
				want = append(want, attach.Listed{ContainerID: id, Record: load(t, l, id)})
			}
			if v4 > 0 {
				opened = append(opened, "")
			}
			opens := check.Opens(t, filepath.Join(l.dir, resultsDir))
			got, err := l.All()
			if err != nil {
				t.Fatal(err)
			}
			same(t, want, got)
			read := opens()
			slices.Sort(opened)
			slices.Sort(read)
			same(t, opened, read)
		})
	}
}

// Any file at all gives an error that says so or a record that the engine can work
// with, and that survives being saved as ours.
func FuzzLoad(f *testing.F) {
	l := New(f.TempDir(), "boot")
	save(f, l, record(f))
	ours := content(f, filepath.Join(l.dir, id))
	v4 := content(f, filepath.Join("testdata/v4-state", v4ID))
	cached := content(f, filepath.Join("testdata/v4-state/results/net-b-"+v4ID+"-net2"))
	entry(f, l, "x", nil)
	f.Add(ours, cached)
	f.Add(v4, cached)
	f.Add(v4, content(f, filepath.Join(l.dir, resultsDir, "x")))
	f.Add([]byte(sealed(`{"state":"intent","plan":{"attachments":[{"config":{"type":"x"}}]}}`)), []byte(`{}`))
	f.Add([]byte(`[{"Bytes":"eyJ0eXBlIjoieCJ9","default-route":["10.0.0.1"]},{"Bytes":"eyJ0eXBlIjoieCJ9"}]`), []byte(`{`))
	f.Add([]byte(nil), cached)
	f.Add([]byte(`[]`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, text, cached []byte) {
		for _, id := range []string{id, v4ID} {
			l := New(t.TempDir(), "boot")
			if text != nil {
				write(t, filepath.Join(l.dir, id), text)
			}
			write(t, filepath.Join(l.dir, resultsDir, "n-"+id+"-eth0"), cached)
			r, err := l.Load(id)
			if err != nil {
				if !errors.Is(err, attach.ErrDamaged) && (text != nil || !errors.Is(err, attach.ErrNoRecord)) {
					t.Fatal(err)
				}
				continue
			}
			if r.Sandbox.ContainerID != id || len(r.Plan.Attachments) == 0 || len(r.Outcomes) > len(r.Plan.Attachments) {
				t.Fatalf("a record that no engine can use: %+v", r)
			}
			r.State = attach.Detaching
			save(t, l, r)
			again := load(t, l, id)
			save(t, l, again)
			same(t, again, load(t, l, id))
		}
	})
}
