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

// Devices is gather.Devices's: ordered by the name of the container, then by id. A
// claim's devices stand under the claim's name, as in Multus v4.3.
//
// The error wraps gather.ErrNotYet where neither the API nor the checkpoint answers.
func (k *Kubelet) Devices(ctx context.Context, pod plan.Pod) (plan.Devices, error) {
	containers, method, err := k.fromAPI(ctx, pod)
	if err == nil {
		return answer(allocated(containers), ofClaims(containers), "the kubelet (pod-resources "+method+")", pod), nil
	}
	found, checkpointErr := fromCheckpoint(k.checkpoint, pod.UID)
	if checkpointErr == nil {
		return answer(found, claims{}, "the kubelet's checkpoint "+k.checkpoint, pod), nil
	}
	return plan.Devices{}, fmt.Errorf("%w: the devices of pod %s: %w; %w", gather.ErrNotYet, pod, err, checkpointErr)
}

func answer(found []gather.Allocation, of claims, who string, pod plan.Pod) plan.Devices {
	d := plan.Devices{ByResource: gather.Arrange(found), ByClaim: gather.Arrange(of.found), Claimed: of.devices}
	var told []string
	for _, devices := range []map[string][]string{d.ByResource, d.ByClaim} {
		if len(devices) > 0 {
			told = append(told, gather.Count(devices))
		}
	}
	if len(told) == 0 {
		d.Detail = fmt.Sprintf("%s has allocated no device to pod %s", who, pod)
		return d
	}
	d.Detail = fmt.Sprintf("%s has allocated to pod %s: %s", who, pod, strings.Join(told, ", "))
	return d
}

// fromAPI returns what the API tells, and which of its methods told it.
func (k *Kubelet) fromAPI(ctx context.Context, pod plan.Pod) ([]*podresources.ContainerResources, string, error) {
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
			return got.GetPodResources().GetContainers(), "Get", nil
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
func inList(pods []*podresources.PodResources, pod plan.Pod) ([]*podresources.ContainerResources, error) {
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
	return match.GetContainers(), nil
}

// allocated are the devices of device plugins.
func allocated(containers []*podresources.ContainerResources) []gather.Allocation {
	var found []gather.Allocation
	for _, c := range containers {
		for _, d := range c.GetDevices() {
			found = append(found, gather.Allocation{Container: c.GetName(), Resource: d.GetResourceName(), IDs: d.GetDeviceIds()})
		}
	}
	return found
}

// claims are the devices of resource claims: the ids by the claim's name, and what they are.
type claims struct {
	found   []gather.Allocation
	devices map[string]plan.Claimed
}

// ofClaims reads a claim's device ids as Multus v4.3 does (contract 1.17): what
// stands after "=" in the names of its CDI devices.
func ofClaims(containers []*podresources.ContainerResources) claims {
	all := claims{devices: map[string]plan.Claimed{}}
	for _, c := range containers {
		for _, claim := range c.GetDynamicResources() {
			for _, r := range claim.GetClaimResources() {
				all.add(c.GetName(), claim.GetClaimName(), r)
			}
		}
	}
	return all
}

// add takes the ids of one device. Kubelets repeat with it the names of the devices
// before it, so of an id the first device counts.
func (c *claims) add(container, claim string, r *podresources.ClaimResource) {
	var ids []string
	for _, cdi := range r.GetCdiDevices() {
		_, id, ok := strings.Cut(cdi.GetName(), "=")
		if !ok {
			continue
		}
		ids = append(ids, id)
		if _, known := c.devices[id]; !known && r.GetDriverName() != "" {
			c.devices[id] = plan.Claimed{Claim: claim, Driver: r.GetDriverName(), Pool: r.GetPoolName(), Device: r.GetDeviceName()}
		}
	}
	c.found = append(c.found, gather.Allocation{Container: container, Resource: claim, IDs: ids})
}
