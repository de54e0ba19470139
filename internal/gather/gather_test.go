package gather_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// world is everything behind a Gatherer's ports. It writes down each call that may
// leave the process.
type world struct {
	cached, live *gather.Pod
	liveErr      error // where live is nil; ErrNotFound where both are
	nads         map[string]string
	resource     string // the resourceName of all definitions
	nadErr       error
	devices      map[string][]string
	devicesErr   error
	byClaim      map[string][]string
	claims       *claims // nil for none
	files        memory
	calls        []string
}

func (w *world) Cached(string, string) (gather.Pod, bool) {
	if w.cached == nil {
		return gather.Pod{}, false
	}
	return *w.cached, true
}

func (w *world) Live(_ context.Context, namespace, name string) (gather.Pod, error) {
	w.calls = append(w.calls, "live pod "+namespace+"/"+name)
	switch {
	case w.live != nil:
		return *w.live, nil
	case w.liveErr != nil:
		return gather.Pod{}, w.liveErr
	}
	return gather.Pod{}, gather.ErrNotFound
}

func (w *world) Network(_ context.Context, ref netspec.Ref) (plan.NAD, error) {
	w.calls = append(w.calls, "network "+ref.String())
	if w.nadErr != nil {
		return plan.NAD{}, w.nadErr
	}
	conf, ok := w.nads[ref.String()]
	if !ok {
		return plan.NAD{}, gather.ErrNotFound
	}
	nad := plan.NAD{Ref: ref, Config: conf}
	if w.resource != "" {
		nad.Annotations = map[string]string{netspec.AnnotationResourceName: w.resource}
	}
	return nad, nil
}

func (w *world) Devices(_ context.Context, pod plan.Pod) (plan.Devices, error) {
	w.calls = append(w.calls, "devices "+pod.String())
	return plan.Devices{ByResource: w.devices, ByClaim: w.byClaim, Detail: "kubelet: nothing"}, w.devicesErr
}

// claims are what the API tells of the pod's claims.
type claims struct {
	devices map[string][]string
	err     error
	asked   int
}

func (c *claims) Devices(context.Context, plan.Pod) (plan.Devices, error) {
	c.asked++
	return plan.Devices{ByResource: c.devices, Claimed: map[string]plan.Claimed{"d1": {Claim: "nics"}}, Detail: "claims: some"}, c.err
}

// memory is files by path. A content that begins with "error:" cannot be read.
type memory map[string]string

func (m memory) ReadFile(name string) ([]byte, error) {
	content, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if strings.HasPrefix(content, "error:") {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	return []byte(content), nil
}

func (m memory) ReadDir(dir string) ([]string, error) {
	if _, bad := m[path.Join(dir, "unreadable")]; bad {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
	}
	var names []string
	for name := range m {
		if path.Dir(name) == path.Clean(dir) {
			names = append(names, path.Base(name))
		}
	}
	return slices.Sorted(slices.Values(names)), nil
}

func (m memory) IsDir(dir string) bool {
	for name := range m {
		if strings.HasPrefix(name, path.Clean(dir)+"/") {
			return true
		}
	}
	return false
}

const mainFile = "/etc/cni/net.d/10-main.conf"

func newWorld() *world {
	return &world{
		nads: map[string]string{
			"app/net-a": `{"cniVersion":"1.0.0","name":"net-a","type":"macvlan"}`,
			"app/net-b": `{"cniVersion":"1.0.0","name":"net-b","type":"macvlan"}`,
		},
		files: memory{mainFile: `{"cniVersion":"1.0.0","name":"main","type":"bridge"}`},
	}
}

// plan plans for the pod app/web of the UID that the runtime names, empty for none.
func (w *world) plan(t *testing.T, uid string, delivered map[string]string) (*plan.Plan, error) {
	t.Helper()
	call := plan.Call{ContainerID: "c0ffee", Interface: "eth0", Args: []plan.Arg{{"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", "web"}}}
	if uid != "" {
		call.Args = append(call.Args, plan.Arg{"K8S_POD_UID", uid})
	}
	g := &gather.Gatherer{Pods: w, Networks: w, Devices: w, Files: w.files}
	if w.claims != nil {
		g.Claims = w.claims
	}
	return g.Plan(t.Context(), parse(t, `{"clusterNetwork":"`+mainFile+`"}`), call, delivered)
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// pod is app/web with a UID and a networks annotation, empty for none.
func pod(uid, networks string, more ...string) *gather.Pod {
	return &gather.Pod{Subject: plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web", UID: uid}, Annotations: annotations(networks, more...)}}
}

// mirror is the API object of a static pod.
func mirror(uid, hash, networks string) *gather.Pod {
	p := pod(uid, networks, netspec.AnnotationConfigSource, "file", "kubernetes.io/config.hash", hash)
	p.Static = true
	return p
}

func annotations(networks string, more ...string) map[string]string {
	all := map[string]string{}
	if networks != "" {
		all[netspec.AnnotationNetworks] = networks
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// outcome is what a plan is for, or the error with its CNI code.
func outcome(p *plan.Plan, err error) string {
	if err != nil {
		cni := api.CNIError(err)
		return fmt.Sprintf("code %d: %s", cni.Code, cni.Msg)
	}
	var names []string
	for _, a := range p.Attachments {
		names = append(names, a.Network)
	}
	return fmt.Sprintf("%s %s: %s", p.Pod, p.Pod.UID, strings.Join(names, ","))
}

var errAway = fmt.Errorf("%w: connection refused", gather.ErrNotYet)

// scenario is one question of whose annotations count, and for which pod.
type scenario struct {
	cached, live *gather.Pod
	liveErr      error
	uid          string
	delivered    map[string]string
	want         string
	reads        int // live reads of the pod
}

func run(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.cached, w.live, w.liveErr = s.cached, s.live, s.liveErr
			p, err := w.plan(t, s.uid, s.delivered)
			if diff := cmp.Diff(s.want, outcome(p, err)); diff != "" {
				t.Errorf("(- want, + got):\n%s", diff)
			}
			if err != nil && !errors.Is(err, gather.ErrNotYet) {
				t.Errorf("does not wrap ErrNotYet: %v", err)
			}
			reads := slices.DeleteFunc(w.calls, func(call string) bool { return !strings.HasPrefix(call, "live") })
			if len(reads) != s.reads {
				t.Errorf("live reads: %v, want %d", reads, s.reads)
			}
		})
	}
}

// TestT22Identity: the pod that counts is the one that the runtime means, never an
// older or newer one of its name.
func TestT22Identity(t *testing.T) {
	static := annotations("net-a", netspec.AnnotationConfigSource, "file")
	run(t, map[string]scenario{
		"the cache has it":         {cached: pod("u1", "net-a"), uid: "u1", want: "app/web u1: main,app/net-a"},
		"the cache has it not yet": {live: pod("u1", "net-a"), uid: "u1", want: "app/web u1: main,app/net-a", reads: 1},
		"a: static pod, its mirror has another UID": {
			cached: mirror("m1", "h1", "net-a"), uid: "h1", want: "app/web h1: main,app/net-a",
		},
		"a: static pod, the mirror has no hash": {
			cached: mirror("m1", "", "net-a"), uid: "h1", want: "app/web h1: main,app/net-a",
		},
		"a: static pod, the mirror is that of an earlier one": {
			cached: mirror("m1", "h0", "net-b"), live: mirror("m2", "h1", "net-a"), uid: "h1", want: "app/web h1: main,app/net-a", reads: 1,
		},
		"a: static pod, the API has only the earlier mirror": {
			cached: mirror("m1", "h0", "net-b"), live: mirror("m1", "h0", "net-b"), uid: "h1", reads: 1,
			want: "code 11: pod app/web: the runtime asks for the pod with UID h1, the API has m1 of that name: not available yet",
		},
		"a: static pod, delivered goes before an old mirror": {
			cached: mirror("m1", "h0", "net-b"), live: mirror("m1", "h0", "net-b"), uid: "h1", delivered: static, want: "app/web h1: main,app/net-a",
		},
		"b: static pod without mirror, delivered": {uid: "h1", delivered: static, want: "app/web h1: main,app/net-a"},
		"b: static pod without mirror, not delivered": {
			uid: "h1", want: "code 11: pod app/web: not available yet: not found", reads: 1,
		},
		"b: an API pod is not found, delivered": {
			uid: "u1", delivered: annotations("net-a", netspec.AnnotationConfigSource, "api"), want: "code 11: pod app/web: not available yet: not found", reads: 1,
		},
		"c: recreated, the cache has the old one": {
			cached: pod("u0", "net-b"), live: pod("u1", "net-a"), uid: "u1", want: "app/web u1: main,app/net-a", reads: 1,
		},
		"c: recreated, the API has the old one too": {
			cached: pod("u0", "net-b"), live: pod("u0", "net-b"), uid: "u1", reads: 1,
			want: "code 11: pod app/web: the runtime asks for the pod with UID u1, the API has u0 of that name: not available yet",
		},
		"c: recreated, the cache has the old one and the API is away": {
			cached: pod("u0", "net-b"), liveErr: errAway, uid: "u1", want: "code 11: pod app/web: not available yet: connection refused", reads: 1,
		},
		"d: no UID":              {cached: pod("u1", "net-a"), want: "app/web u1: main,app/net-a"},
		"d: no UID and no cache": {live: pod("u1", "net-a"), want: "app/web u1: main,app/net-a", reads: 1},
	})
}

// TestT23ApiAway: with the API away a pod has what is known for certain, or waits. It
// never gets less than it asked for (design, rule 1).
func TestT23ApiAway(t *testing.T) {
	run(t, map[string]scenario{
		"a warm cache":     {cached: pod("u1", "net-a"), liveErr: errAway, uid: "u1", want: "app/web u1: main,app/net-a"},
		"delivered":        {liveErr: errAway, uid: "u1", delivered: annotations("net-a"), want: "app/web u1: main,app/net-a", reads: 1},
		"delivered, plain": {liveErr: errAway, uid: "u1", delivered: annotations(""), want: "app/web u1: main", reads: 1},
		"delivered, the cache has an older pod": {
			cached: pod("u0", "net-b"), liveErr: errAway, uid: "u1", delivered: annotations("net-a"), want: "app/web u1: main,app/net-a", reads: 1,
		},
		"not delivered": {liveErr: errAway, uid: "u1", want: "code 11: pod app/web: not available yet: connection refused", reads: 1},
		"delivered none, cached a selection": {
			cached: pod("u1", "net-a"), liveErr: errAway, uid: "u1", delivered: annotations(""), want: "app/web u1: main,app/net-a", reads: 1,
		},
		"delivered a selection, cached none": {
			cached: pod("u1", ""), liveErr: errAway, uid: "u1", delivered: annotations("net-a"), want: "app/web u1: main,app/net-a", reads: 1,
		},
		"delivered one selection, cached another": {
			cached: pod("u1", "net-b"), liveErr: errAway, uid: "u1", delivered: annotations("net-a"), reads: 1,
			want: "code 11: pod app/web: the runtime and the cache know different networks of the pod: not available yet: connection refused",
		},
	})
}

// TestI2_Freshness: a cache that disagrees with what the runtime delivered is asked
// about at the API, once, and the API is believed.
func TestI2_Freshness(t *testing.T) {
	defaultNetwork := annotations("", netspec.AnnotationDefaultNetwork, "app/net-b")
	run(t, map[string]scenario{
		"they agree": {cached: pod("u1", "net-a"), uid: "u1", delivered: annotations("net-a", "other", "x"), want: "app/web u1: main,app/net-a"},
		"delivered is newer": {
			cached: pod("u1", ""), live: pod("u1", "net-a"), uid: "u1", delivered: annotations("net-a"), want: "app/web u1: main,app/net-a", reads: 1,
		},
		"the cache is newer": {
			cached: pod("u1", "net-b"), live: pod("u1", "net-b"), uid: "u1", delivered: annotations("net-a"), want: "app/web u1: main,app/net-b", reads: 1,
		},
		"both are old": {
			cached: pod("u1", "net-a"), live: pod("u1", "net-a,net-b"), uid: "u1", delivered: annotations(""), want: "app/web u1: main,app/net-a,app/net-b", reads: 1,
		},
		"default-network counts too": {
			cached: pod("u1", ""), live: pod("u1", "", netspec.AnnotationDefaultNetwork, "app/net-b"), uid: "u1", delivered: defaultNetwork, want: "app/web u1: app/net-b", reads: 1,
		},
	})
}

// TestI2_Networks: what the Networks port answers, and how often it is asked.
func TestI2_Networks(t *testing.T) {
	for name, c := range map[string]struct {
		networks string
		err      error
		want     string
		calls    []string
	}{
		"none": {"", nil, "app/web u1: main", nil},
		"each asked once": {
			"net-a,net-b,net-a", nil, "app/web u1: main,app/net-a,app/net-b,app/net-a",
			[]string{"network app/net-a", "network app/net-b"},
		},
		"missing": {
			"net-a,net-x", nil,
			`code 7: pod app/web: network selection element 2, network app/net-x, annotation "k8s.v1.cni.cncf.io/networks": there is no such NetworkAttachmentDefinition; right would be the name of one that exists`,
			[]string{"network app/net-a", "network app/net-x"},
		},
		"unavailable": {"net-a", errAway, "code 11: pod app/web: network app/net-a: not available yet: connection refused", []string{"network app/net-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.cached, w.nadErr = pod("u1", c.networks), c.err
			got := outcome(w.plan(t, "u1", nil))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(- want, + got):\n%s", diff)
			}
			if diff := cmp.Diff(c.calls, w.calls); diff != "" {
				t.Errorf("calls (- want, + got):\n%s", diff)
			}
		})
	}
}

// TestT25Devices: the kubelet is asked once, and only where a definition names a
// resource; what it says is in the line where a device is missing.
func TestT25Devices(t *testing.T) {
	missing := `code 7: pod app/web: network selection element 1, network app/net-a, annotation "k8s.v1.cni.cncf.io/resourceName": ` +
		`found 0 devices of the resource "intel.com/vf" allocated to the pod, and this attachment takes number 1 (%s); ` +
		`right would be as many devices in the containers' resources as the pod has attachments of the resource`
	for name, c := range map[string]struct {
		resource string
		devices  map[string][]string
		err      error
		want     string
		asked    int
	}{
		"no resource":     {want: "app/web u1: main,app/net-a,app/net-a"},
		"allocated":       {resource: "intel.com/vf", devices: map[string][]string{"intel.com/vf": {"d1", "d2"}}, want: "app/web u1: main,app/net-a d1,app/net-a d2", asked: 1},
		"b: none":         {resource: "intel.com/vf", want: fmt.Sprintf(missing, "kubelet: nothing") + "\n" + secondMissing(missing), asked: 1},
		"kubelet is away": {resource: "intel.com/vf", err: errAway, want: "code 11: pod app/web: its devices: not available yet: connection refused", asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.cached, w.resource, w.devices, w.devicesErr = pod("u1", "net-a,net-a"), c.resource, c.devices, c.err
			p, err := w.plan(t, "u1", nil)
			if err == nil {
				for i, a := range p.Attachments {
					if a.DeviceID != "" {
						p.Attachments[i].Network += " " + a.DeviceID
					}
				}
			}
			if diff := cmp.Diff(c.want, outcome(p, err)); diff != "" {
				t.Errorf("(- want, + got):\n%s", diff)
			}
			asked := slices.DeleteFunc(w.calls, func(call string) bool { return call != "devices app/web" })
			if len(asked) != c.asked {
				t.Errorf("asked %d times for devices, want %d", len(asked), c.asked)
			}
		})
	}
}

// TestC1_17WhenClaimsAreAsked: the API is, where the kubelet has allocated none of a
// resource; the names of claims, as v4.3 read them, do where it cannot be.
func TestC1_17WhenClaimsAreAsked(t *testing.T) {
	const resource = "nic.example/vf"
	has := func(ids ...string) map[string][]string { return map[string][]string{resource: ids} }
	for name, c := range map[string]struct {
		kubelet, byClaim map[string][]string
		claims           claims
		want             string
		asked            int
	}{
		"a device plugin's":             {kubelet: has("k1"), want: "k1 of no claim"},
		"a claim's":                     {byClaim: has("vf1"), claims: claims{devices: has("d1")}, want: "d1 of nics", asked: 1},
		"by the claim's name":           {byClaim: has("vf1"), claims: claims{devices: map[string][]string{"other": {"d9"}}}, want: "vf1 of no claim", asked: 1},
		"API away, by the claim's name": {byClaim: has("vf1"), claims: claims{err: errAway}, want: "vf1 of no claim", asked: 1},
		"API away":                      {claims: claims{err: errAway}, want: "code 11: pod app/web: its devices: kubelet: nothing; not available yet: connection refused", asked: 1},
		"none": {want: `code 7: pod app/web: network selection element 1, network app/net-a, annotation "k8s.v1.cni.cncf.io/resourceName": ` +
			`found 0 devices of the resource "nic.example/vf" allocated to the pod, and this attachment takes number 1 (kubelet: nothing; claims: some); ` +
			`right would be as many devices in the containers' resources as the pod has attachments of the resource`, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.cached, w.resource, w.devices, w.byClaim, w.claims = pod("u1", "net-a"), resource, c.kubelet, c.byClaim, &c.claims
			p, err := w.plan(t, "u1", nil)
			var got string
			if err != nil {
				got = outcome(p, err)
			} else {
				a, claim := p.Attachments[1], "no claim"
				if a.Claim != nil {
					claim = a.Claim.Claim
				}
				got = a.DeviceID + " of " + claim
			}
			if got != c.want || c.claims.asked != c.asked {
				t.Errorf("asked %d times: %s", c.claims.asked, got)
			}
		})
	}
}

// secondMissing is the line of the second attachment of the resource.
func secondMissing(first string) string {
	second := strings.NewReplacer("code 7: ", "", "element 1", "element 2", "number 1", "number 2").Replace(first)
	return fmt.Sprintf(second, "kubelet: nothing")
}

// TestI2_WithoutCluster: with files alone, as the plugin attaches a plain pod and as
// thin does without Kubernetes.
func TestI2_WithoutCluster(t *testing.T) {
	w := newWorld()
	call := plan.Call{ContainerID: "c0ffee", Interface: "eth0", Args: []plan.Arg{{"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", "web"}}}
	g := &gather.Gatherer{Files: w.files}
	cfg := parse(t, `{"clusterNetwork":"`+mainFile+`"}`)
	if got := outcome(g.Plan(t.Context(), cfg, call, nil)); got != "app/web : main" {
		t.Errorf("plain: %s", got)
	}
	got := outcome(g.Plan(t.Context(), cfg, call, annotations("net-a")))
	if !strings.HasPrefix(got, "code 7: pod app/web: network selection element 1, network app/net-a") {
		t.Errorf("annotated: %s", got)
	}
	g.Networks, w.resource = w, "intel.com/vf"
	if got = outcome(g.Plan(t.Context(), cfg, call, annotations("net-a"))); !strings.Contains(got, "(no kubelet to ask here)") {
		t.Errorf("with a resource: %s", got)
	}
	delete(w.files, mainFile)
	_, err := g.Plan(t.Context(), cfg, call, nil)
	if code := api.CNIError(err).Code; code != types.ErrTryAgainLater {
		t.Errorf("without the primary network's file: code %d, %v", code, err)
	}
}

// TestC1_3ReadPath: a path leads to a file or a folder's first file, with the folders
// beside it. What is there and cannot be read is said, never left out.
func TestC1_3ReadPath(t *testing.T) {
	file := func(name, content string) plan.File { return plan.File{Path: name, Content: []byte(content)} }
	const list = `{"cniVersion":"1.1.0","name":"main","plugins":[{"type":"bridge"}]}`
	for name, c := range map[string]struct {
		files memory
		path  string
		want  plan.PathFacts
	}{
		"a file":  {memory{"/n/10-a.conf": "A"}, "/n/10-a.conf", plan.PathFacts{File: file("/n/10-a.conf", "A")}},
		"no file": {memory{"/n/10-a.conf": "A"}, "/n/20-b.conf", plan.PathFacts{File: plan.File{Path: "/n/20-b.conf", Missing: "it does not exist"}}},
		"a file that cannot be read": {
			memory{"/n/10-a.conf": "error:"},
			"/n/10-a.conf",
			plan.PathFacts{File: plan.File{Path: "/n/10-a.conf", Missing: "input/output error"}},
		},
		"a folder": {
			memory{"/n/20-b.conflist": "B", "/n/10-a.json": "A", "/n/05-x.conf.bak": "X", "/n/00-sub/a.conf": "S"},
			"/n/",
			plan.PathFacts{File: file("/n/10-a.json", "A")},
		},
		"a folder without files":       {memory{"/n/README": "R"}, "/n", plan.PathFacts{File: plan.File{Path: "/n", Missing: "the folder holds no CNI configuration file"}}},
		"a folder that cannot be read": {memory{"/n/unreadable": ""}, "/n", plan.PathFacts{File: plan.File{Path: "/n", Missing: "permission denied"}}},
		"a chained list": {
			memory{"/n/10-a.conflist": list, "/n/main/20-b.conf": "B", "/n/main/10-a.conf": "A", "/n/main/30-c.conflist": "C"},
			"/n/10-a.conflist",
			plan.PathFacts{File: file("/n/10-a.conflist", list), Chained: []plan.File{file("/n/main/10-a.conf", "A"), file("/n/main/20-b.conf", "B")}},
		},
		"a chained list without plugins of its own": {
			memory{"/n/10-a.conflist": `{"name":"main"}`, "/n/main/10-a.conf": "A"},
			"/n/10-a.conflist",
			plan.PathFacts{File: file("/n/10-a.conflist", `{"name":"main"}`), Chained: []plan.File{file("/n/main/10-a.conf", "A")}},
		},
		"a chained file that cannot be read": {
			memory{"/n/10-a.conflist": list, "/n/main/10-a.conf": "error:"},
			"/n/10-a.conflist",
			plan.PathFacts{File: file("/n/10-a.conflist", list), Chained: []plan.File{{Path: "/n/main/10-a.conf", Missing: "input/output error"}}},
		},
		"a name that leads out of the folder": {
			memory{"/n/10-a.conflist": `{"name":"../m"}`, "/m/10-a.conf": "A"},
			"/n/10-a.conflist",
			plan.PathFacts{File: file("/n/10-a.conflist", `{"name":"../m"}`)},
		},
		"a conf is not chained": {
			memory{"/n/10-a.conf": `{"name":"main","type":"bridge"}`, "/n/main/10-a.conf": "A"},
			"/n/10-a.conf",
			plan.PathFacts{File: file("/n/10-a.conf", `{"name":"main","type":"bridge"}`)},
		},
		"an auxiliary chain": {
			memory{"/n/10-a.conf": "A", "/n/aux/10-x.conf": "X", "/n/aux/notes": "N"},
			"/n/10-a.conf",
			plan.PathFacts{File: file("/n/10-a.conf", "A"), Auxiliary: []plan.File{file("/n/aux/10-x.conf", "X")}},
		},
		"an auxiliary chain that cannot be read": {
			memory{"/n/10-a.conf": "A", "/n/aux/unreadable": ""},
			"/n/10-a.conf",
			plan.PathFacts{File: file("/n/10-a.conf", "A"), Auxiliary: []plan.File{{Path: "/n/aux", Missing: "permission denied"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, gather.ReadPath(c.files, c.path, "aux"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(- want, + got):\n%s", diff)
			}
		})
	}
}

// TestC1_6ConfDir: files of confDir that cannot be read do not stop a pod whose network
// is found, and are named where it is not.
func TestC1_6ConfDir(t *testing.T) {
	w := newWorld()
	w.cached = pod("u1", "net-a")
	w.nads["app/net-a"] = ""
	w.files["/etc/cni/multus/net.d/10-bad.conf"] = "error:"
	w.files["/etc/cni/multus/net.d/20-a.conf"] = `{"cniVersion":"1.0.0","name":"net-a","type":"macvlan"}`
	if got := outcome(w.plan(t, "u1", nil)); got != "app/web u1: main,app/net-a" {
		t.Errorf("found: %s", got)
	}
	delete(w.files, "/etc/cni/multus/net.d/20-a.conf")
	got := outcome(w.plan(t, "u1", nil))
	if !strings.Contains(got, `holds a network named "net-a"; /etc/cni/multus/net.d/10-bad.conf cannot be read: input/output error; right would be`) {
		t.Errorf("not found: %s", got)
	}
}

// TestR1AChainIsNeverShortened: a plugin of the node's chains that cannot be read stops
// the pod for now, instead of being left out.
func TestR1AChainIsNeverShortened(t *testing.T) {
	w := newWorld()
	w.files = memory{
		"/n/10-a.conflist":   `{"cniVersion":"1.1.0","name":"main","plugins":[{"type":"bridge"}]}`,
		"/n/main/10-a.conf":  "error:",
		"/n/aux/10-aux.conf": "error:",
	}
	call := plan.Call{ContainerID: "c0ffee", Interface: "eth0", Args: []plan.Arg{{"K8S_POD_NAMESPACE", "app"}, {"K8S_POD_NAME", "web"}}}
	g := &gather.Gatherer{Files: w.files}
	const want = `code 11: pod app/web: key "clusterNetwork": /n/main/10-a.conf cannot be read: input/output error; right would be a CNI configuration file, or a folder of them
pod app/web: key "auxiliaryCNIChainName": /n/aux/10-aux.conf cannot be read: input/output error; right would be one CNI plugin's configuration in each file`
	got := outcome(g.Plan(t.Context(), parse(t, `{"clusterNetwork":"/n/10-a.conflist","auxiliaryCNIChainName":"aux"}`), call, nil))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

// TestI2_OSFiles: the real file system, where a folder may hold more than files.
func TestI2_OSFiles(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "20-b.conf"), []byte("B"), 0o600))
	must(os.Symlink("20-b.conf", filepath.Join(dir, "10-a.conf")))
	must(os.Mkdir(filepath.Join(dir, "05-folder.conf"), 0o700))
	must(syscall.Mkfifo(filepath.Join(dir, "06-pipe.conf"), 0o600))
	var files gather.OS
	names, err := files.ReadDir(dir)
	must(err)
	if diff := cmp.Diff([]string{"10-a.conf", "20-b.conf"}, names); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	content, err := files.ReadFile(filepath.Join(dir, "10-a.conf"))
	must(err)
	if string(content) != "B" || !files.IsDir(dir) || files.IsDir(filepath.Join(dir, "10-a.conf")) || files.IsDir(filepath.Join(dir, "absent")) {
		t.Errorf("content %q", content)
	}
}
