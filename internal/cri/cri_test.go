package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/multus-thick/multus/internal/attach"
)

// fake is a runtime with three sandboxes: one that is ready, one that has ended, and one
// that it cannot tell of.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	info string
}

func (f *fake) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	all := []*runtimeapi.PodSandbox{
		{Id: "s1", State: runtimeapi.PodSandboxState_SANDBOX_READY, Labels: map[string]string{uidLabel: "u1"}},
		{Id: "s2", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, Labels: map[string]string{uidLabel: "u2"}},
	}
	list := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range all {
		if r.GetFilter() == nil || s.GetState() == r.GetFilter().GetState().GetState() && s.GetLabels()[uidLabel] == r.GetFilter().GetLabelSelector()[uidLabel] {
			list.Items = append(list.Items, s)
		}
	}
	return list, nil
}

func (f *fake) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if !r.GetVerbose() || r.GetPodSandboxId() != "s1" {
		return nil, fmt.Errorf("asked for %v", r)
	}
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": f.info}}, nil
}

func TestI5_SandboxOfAPod(t *testing.T) {
	dir, err := os.MkdirTemp("", "cri") // t.TempDir's is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	r := New(socket)
	if _, err := r.Sandboxes(t.Context()); err == nil {
		t.Error("a runtime that is away answers")
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	f := &fake{info: `{"pid":7,"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/cni-1"}]}}}`}
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })

	all, err := r.Sandboxes(t.Context())
	if diff := cmp.Diff(map[string]bool{"s1": true, "s2": true}, all); diff != "" || err != nil {
		t.Error(diff, err)
	}
	sb, err := r.Sandbox(t.Context(), "u1")
	if want := (attach.Sandbox{ContainerID: "s1", NetNS: "/var/run/netns/cni-1"}); sb != want || err != nil {
		t.Errorf("got %+v, %v", sb, err)
	}
	if _, err := r.Sandbox(t.Context(), "u2"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("a sandbox that has ended: %v", err)
	}
	where := `key "criSocketPath": the container runtime at ` + socket + ": its answer about a sandbox "
	for info, want := range map[string]string{
		"":   where + `has no readable key "info": unexpected end of JSON input`,
		"{}": where + "names no network namespace",
	} {
		f.info = info
		if _, err := r.Sandbox(t.Context(), "u1"); err == nil || err.Error() != want {
			t.Errorf("%q gives %v", info, err)
		}
	}
}
