// Package cri asks a container runtime over the CRI which pod sandboxes it knows, and
// where their network namespaces are: the pod API has neither. It changes nothing.
//
// Package daemon calls it, for late attachment and for files of Multus v4 that do not
// tell whose they are.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/multus-thick/multus/internal/attach"
)

const (
	timeout   = 10 * time.Second
	maxAnswer = 16 << 20 // bytes; the list tells of the whole node
)

// uidLabel is the kubelet's label on a sandbox.
const uidLabel = "io.kubernetes.pod.uid"

// ErrNoSandbox says that the runtime has no running sandbox of a pod.
var ErrNoSandbox = errors.New("the runtime has no running sandbox of the pod")

// Runtime is the container runtime at a socket, which may come and go.
type Runtime struct{ socket string }

// New takes the socket's path as this process sees it.
func New(socket string) *Runtime { return &Runtime{socket} }

// ask makes a connection for one call: runtimes restart, and a kept one would sit in back-off.
func (r *Runtime) ask(ctx context.Context, call func(context.Context, runtimeapi.RuntimeServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+r.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err == nil {
		defer conn.Close()
		err = call(ctx, runtimeapi.NewRuntimeServiceClient(conn))
	}
	if err != nil {
		return fmt.Errorf("key \"criSocketPath\": the container runtime at %s: %w", r.socket, err)
	}
	return nil
}

// Sandboxes are the ids of all sandboxes that the runtime knows, in whatever state.
func (r *Runtime) Sandboxes(ctx context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	err := r.ask(ctx, func(ctx context.Context, c runtimeapi.RuntimeServiceClient) error {
		list, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		for _, s := range list.GetItems() {
			ids[s.GetId()] = true
		}
		return err
	})
	return ids, err
}

// Sandbox is the running sandbox of the pod with this UID. Wraps ErrNoSandbox.
func (r *Runtime) Sandbox(ctx context.Context, uid string) (attach.Sandbox, error) {
	var found attach.Sandbox
	err := r.ask(ctx, func(ctx context.Context, c runtimeapi.RuntimeServiceClient) error {
		list, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
			LabelSelector: map[string]string{uidLabel: uid},
		}})
		if err != nil {
			return err
		}
		if len(list.GetItems()) == 0 {
			return ErrNoSandbox
		}
		id := list.GetItems()[0].GetId()
		status, err := c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		if err != nil {
			return err
		}
		netns, err := networkNamespace(status.GetInfo()["info"])
		found = attach.Sandbox{ContainerID: id, NetNS: netns}
		return err
	})
	return found, err
}

// networkNamespace reads the verbose status of containerd and CRI-O, which have the same
// form: the runtime specification of the sandbox's container is in it.
func networkNamespace(info string) (string, error) {
	var told struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info), &told); err != nil {
		return "", fmt.Errorf("its answer about a sandbox has no readable key \"info\": %w", err)
	}
	for _, n := range told.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" && n.Path != "" {
			return n.Path, nil
		}
	}
	return "", errors.New("its answer about a sandbox names no network namespace")
}
