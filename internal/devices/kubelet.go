package devices

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// The kubelet's places (contract 1.9).
const (
	DefaultSocket     = "/var/lib/kubelet/pod-resources/kubelet.sock"
	DefaultCheckpoint = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
)

const (
	apiTimeout = 10 * time.Second
	maxAnswer  = 16 << 20 // bytes; List tells of the whole node
)

// Kubelet asks one node's kubelet. It satisfies gather.Devices; it is safe for
// concurrent use.
type Kubelet struct {
	socket, checkpoint string
	noGet              atomic.Bool // the kubelet is older than Get
}

// New takes the paths of the kubelet's socket and checkpoint file. Neither needs to exist.
func New(socket, checkpoint string) *Kubelet {
	return &Kubelet{socket: socket, checkpoint: checkpoint}
}

// Devices returns the ids of the pod's devices by resource name: ordered by the
// name of the container, then by id, each id once. The API promises no order, so an
// order that is the same on every call can come from the names only. A DRA claim's
// devices stand under the claim's name, as in Multus v4.3.
//
// detail names who answered and with what. The error wraps gather.ErrNotYet where
// neither the API nor the checkpoint answers.
func (k *Kubelet) Devices(ctx context.Context, pod plan.Pod) (map[string][]string, string, error) {
	found, method, err := k.fromAPI(ctx, pod)
	if err == nil {
		return answer(found, "the kubelet (pod-resources "+method+")", pod)
	}
	found, checkpointErr := fromCheckpoint(k.checkpoint, pod.UID)
	if checkpointErr == nil {
		return answer(found, "the kubelet's checkpoint "+k.checkpoint, pod)
	}
	return nil, "", fmt.Errorf("%w: the devices of pod %s: %w; %w", gather.ErrNotYet, pod, err, checkpointErr)
}

func answer(found []allocation, who string, pod plan.Pod) (map[string][]string, string, error) {
	byResource := arrange(found)
	if len(byResource) == 0 {
		return byResource, fmt.Sprintf("%s has allocated no device to pod %s", who, pod), nil
	}
	return byResource, fmt.Sprintf("%s has allocated to pod %s: %s", who, pod, describe(byResource)), nil
}

// fromAPI returns what the API tells, and which of its methods told it.
func (k *Kubelet) fromAPI(ctx context.Context, pod plan.Pod) ([]allocation, string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	// A connection a call: the kubelet makes a new socket at each start, and a kept
	// connection would sit in back-off when it is needed.
	conn, err := grpc.NewClient("unix://"+k.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, "", fmt.Errorf("pod-resources socket %s: %w", k.socket, err)
	}
	defer conn.Close()
	client := podresources.NewPodResourcesListerClient(conn)

	if !k.noGet.Load() {
		got, err := client.Get(ctx, &podresources.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
		if err == nil {
			return ofContainers(got.GetPodResources().GetContainers()), "Get", nil
		}
		// A kubelet that has Get switched off says "unknown": List is asked, and Get
		// is tried again next time.
		k.noGet.Store(status.Code(err) == codes.Unimplemented)
	}
	list, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, "", fmt.Errorf("pod-resources socket %s: %w", k.socket, err)
	}
	found, err := inList(list.GetPodResources(), pod)
	return found, "List", err
}

// inList finds the pod in an answer that tells of the whole node.
func inList(pods []*podresources.PodResources, pod plan.Pod) ([]allocation, error) {
	var match *podresources.PodResources
	for _, p := range pods {
		if p.GetNamespace() != pod.Namespace || p.GetName() != pod.Name {
			continue
		}
		// While the kubelet ends the predecessor of a pod that was made anew, List
		// has both, without UIDs. The checkpoint tells them apart.
		if match != nil {
			return nil, fmt.Errorf("the kubelet's pod-resources API lists two pods %s", pod)
		}
		match = p
	}
	return ofContainers(match.GetContainers()), nil
}

func ofContainers(containers []*podresources.ContainerResources) []allocation {
	var found []allocation
	for _, c := range containers {
		for _, d := range c.GetDevices() {
			found = append(found, allocation{c.GetName(), d.GetResourceName(), d.GetDeviceIds()})
		}
		for _, claim := range c.GetDynamicResources() {
			found = append(found, allocation{c.GetName(), claim.GetClaimName(), ofClaim(claim)})
		}
	}
	return found
}

// ofClaim reads a claim's device ids as Multus v4.3 does (contract 1.17): what
// stands after "=" in the names of its CDI devices.
func ofClaim(claim *podresources.DynamicResource) []string {
	var ids []string
	for _, r := range claim.GetClaimResources() {
		for _, cdi := range r.GetCdiDevices() {
			if _, id, ok := strings.Cut(cdi.GetName(), "="); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
