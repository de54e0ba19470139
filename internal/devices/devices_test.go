package devices

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

var pod = plan.Pod{Namespace: "ns", Name: "pod", UID: "uid-1"}

// server is a kubelet: it answers with its pods, shuffled at every level.
type server struct {
	podresources.UnimplementedPodResourcesListerServer
	pods        func() []*podresources.PodResources
	getError    error
	listError   error
	gets, lists atomic.Int32
}

func (s *server) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.lists.Add(1)
	return &podresources.ListPodResourcesResponse{PodResources: shuffled(s.pods())}, s.listError
}

func (s *server) Get(_ context.Context, r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	s.gets.Add(1)
	if s.getError != nil {
		return nil, s.getError
	}
	for _, p := range shuffled(s.pods()) {
		if p.Name == r.PodName && p.Namespace == r.PodNamespace {
			return &podresources.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, errors.New("no such pod")
}

func shuffled(pods []*podresources.PodResources) []*podresources.PodResources {
	shuffle(pods)
	for _, p := range pods {
		shuffle(p.Containers)
		for _, c := range p.Containers {
			shuffle(c.Devices)
			for _, d := range c.Devices {
				shuffle(d.DeviceIds)
			}
		}
	}
	return pods
}

func shuffle[T any](s []T) {
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

// start serves on a socket and returns a Kubelet that asks it, with the checkpoint given.
func start(t *testing.T, s *server, checkpoint string) *Kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "devices") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(g, s)
	go g.Serve(listener)
	t.Cleanup(g.Stop)
	return New(socket, checkpoint)
}

func has(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func container(name string, devices ...*podresources.ContainerDevices) *podresources.ContainerResources {
	return &podresources.ContainerResources{Name: name, Devices: devices}
}

func node() []*podresources.PodResources {
	return []*podresources.PodResources{
		{Namespace: "other", Name: "pod", Containers: []*podresources.ContainerResources{container("c", has("x/nic", "other"))}},
		{Namespace: "ns", Name: "pod2", Containers: []*podresources.ContainerResources{container("c", has("x/nic", "pod2's"))}},
		{Namespace: "ns", Name: "pod", Containers: []*podresources.ContainerResources{
			container("b", has("x/nic", "1", "2"), has("y/gpu", "g0")),
			container("a", has("x/nic", "8"), has("x/nic", "9")), // one entry a NUMA node
			container("c", has("x/nic", "9")),                    // shared with a
		}},
		{Namespace: "ns", Name: "idle", Containers: []*podresources.ContainerResources{container("a")}},
		{Namespace: "ns", Name: "twice", Containers: []*podresources.ContainerResources{container("a", has("x/nic", "old"))}},
		{Namespace: "ns", Name: "twice", Containers: []*podresources.ContainerResources{container("a", has("x/nic", "new"))}},
		{Namespace: "ns", Name: "claims", Containers: []*podresources.ContainerResources{{Name: "a", DynamicResources: []*podresources.DynamicResource{{
			ClaimName: "nics", ClaimResources: []*podresources.ClaimResource{ // the kubelet repeats what came before
				{DriverName: "vendor.example", PoolName: "n1", DeviceName: "d1", CdiDevices: []*podresources.CDIDevice{{Name: "vendor/net=v1"}, {Name: "odd"}}},
				{DriverName: "vendor.example", PoolName: "n1", DeviceName: "d2", CdiDevices: []*podresources.CDIDevice{{Name: "vendor/net=v1"}, {Name: "vendor/net=v2"}}},
			},
		}}}}},
	}
}

func ask(t *testing.T, k *Kubelet, pod plan.Pod) plan.Devices {
	t.Helper()
	devices, err := k.Devices(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// plugins is what device plugins' devices alone look like.
func plugins(byResource map[string][]string, detail string) plan.Devices {
	return plan.Devices{ByResource: byResource, Detail: detail}
}

func TestT25ShuffledAnswersGiveOneMapping(t *testing.T) {
	for method, getError := range map[string]error{"Get": nil, "List": status.Error(codes.Unimplemented, "old")} {
		k := start(t, &server{pods: node, getError: getError}, "")
		want := plugins(
			map[string][]string{"x/nic": {"8", "9", "1", "2"}, "y/gpu": {"g0"}},
			"the kubelet (pod-resources "+method+") has allocated to pod ns/pod: x/nic (4), y/gpu (1)",
		)
		for range 20 {
			if diff := cmp.Diff(want, ask(t, k, pod), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", method, diff)
			}
		}
	}
}

func TestT25NothingAllocated(t *testing.T) {
	k := start(t, &server{pods: node}, "")
	for _, name := range []string{"idle", "unknown"} {
		method := map[string]string{"idle": "Get", "unknown": "List"}[name]
		want := plugins(nil, "the kubelet (pod-resources "+method+") has allocated no device to pod ns/"+name)
		if diff := cmp.Diff(want, ask(t, k, plan.Pod{Namespace: "ns", Name: name}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestC1_17ClaimsByName(t *testing.T) {
	k := start(t, &server{pods: node}, "")
	nic := func(device string) plan.Claimed {
		return plan.Claimed{Claim: "nics", Driver: "vendor.example", Pool: "n1", Device: device}
	}
	want := plan.Devices{
		ByClaim: map[string][]string{"nics": {"v1", "v2"}},
		Claimed: map[string]plan.Claimed{"v1": nic("d1"), "v2": nic("d2")},
		Detail:  "the kubelet (pod-resources Get) has allocated to pod ns/claims: nics (2)",
	}
	if diff := cmp.Diff(want, ask(t, k, plan.Pod{Namespace: "ns", Name: "claims"}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestC1_20GetIsUsedWhereTheKubeletHasIt(t *testing.T) {
	tests := map[string]struct {
		getError    error
		gets, lists int32 // of two calls
	}{
		"has it":     {nil, 2, 0},
		"too old":    {status.Error(codes.Unimplemented, "unknown method Get"), 1, 2},
		"turned off": {errors.New("PodResources API Get method disabled"), 2, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &server{pods: node, getError: tt.getError}
			k := start(t, s, "")
			ask(t, k, pod)
			ask(t, k, pod)
			if s.gets.Load() != tt.gets || s.lists.Load() != tt.lists {
				t.Errorf("%d Get and %d List, want %d and %d", s.gets.Load(), s.lists.Load(), tt.gets, tt.lists)
			}
		})
	}
}

func TestC1_9LargeList(t *testing.T) {
	large := func() []*podresources.PodResources { // beyond gRPC's own limit of 4 MiB
		ids := slices.Repeat([]string{strings.Repeat("i", 1000)}, 8<<10)
		return append(node(), &podresources.PodResources{Namespace: "ns", Name: "large", Containers: []*podresources.ContainerResources{container("c", has("x/nic", ids...))}})
	}
	k := start(t, &server{pods: large, getError: status.Error(codes.Unimplemented, "old")}, "")
	if got := ask(t, k, pod).ByResource["y/gpu"]; !slices.Equal(got, []string{"g0"}) {
		t.Errorf("got %v", got)
	}
}

const checkpoint = `{"Data":{"PodDeviceEntries":[
	{"PodUID":"uid-1","ContainerName":"b","ResourceName":"x/nic","DeviceIDs":{"1":["2"],"0":["1"]},"AllocResp":"AAAA"},
	{"PodUID":"uid-2","ContainerName":"a","ResourceName":"x/nic","DeviceIDs":{"-1":["new"]},"AllocResp":""},
	{"PodUID":"uid-1","ContainerName":"a","ResourceName":"x/nic","DeviceIDs":["9","8"],"AllocResp":""}],
	"RegisteredDevices":{"x/nic":["1","2","8","9"]}},"Checksum":1}`

func writeCheckpoint(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet_internal_checkpoint")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestC1_9CheckpointWhereTheAPIIsSilent(t *testing.T) {
	path := writeCheckpoint(t, checkpoint)
	broken := &server{pods: node, getError: errors.New("broken"), listError: errors.New("broken")}
	for name, k := range map[string]*Kubelet{"no socket": New("/nonexistent/kubelet.sock", path), "an error": start(t, broken, path)} {
		for range 20 { // the ids come from a map
			want := plugins(map[string][]string{"x/nic": {"8", "9", "1", "2"}}, "the kubelet's checkpoint "+path+" has allocated to pod ns/pod: x/nic (4)")
			if diff := cmp.Diff(want, ask(t, k, pod), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}
		}
	}
}

func TestT22TwoPodsOfOneName(t *testing.T) {
	s := &server{pods: node, getError: status.Error(codes.Unimplemented, "old")}
	k := start(t, s, writeCheckpoint(t, checkpoint))
	got := ask(t, k, plan.Pod{Namespace: "ns", Name: "twice", UID: "uid-2"}).ByResource
	if diff := cmp.Diff(map[string][]string{"x/nic": {"new"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestR1NobodyAnswersIsNotYet(t *testing.T) {
	tests := map[string]struct {
		checkpoint string
		uid        string
		says       string
	}{
		"no checkpoint":      {"/nonexistent/checkpoint", "uid-1", "checkpoint: open /nonexistent/checkpoint: no such file or directory"},
		"a damaged one":      {writeCheckpoint(t, checkpoint[:100]), "uid-1", " is not what the kubelet writes: unexpected end of JSON input"},
		"no UID to look for": {writeCheckpoint(t, checkpoint), "", " knows pods by UID, and the UID of this one is not known"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New("/nonexistent/kubelet.sock", tt.checkpoint).Devices(t.Context(), plan.Pod{Namespace: "ns", Name: "pod", UID: tt.uid})
			if !errors.Is(err, gather.ErrNotYet) {
				t.Fatalf("got %v", err)
			}
			for _, part := range []string{"not available yet: the devices of pod ns/pod: pod-resources socket /nonexistent/kubelet.sock: ", tt.says} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := start(t, &server{pods: node}, "/nonexistent").Devices(ctx, pod); !errors.Is(err, gather.ErrNotYet) {
		t.Errorf("a caller that has gone: got %v", err)
	}
}

var _ gather.Devices = (*Kubelet)(nil)
