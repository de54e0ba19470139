package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
)

// runtime calls the plugin as containerd does.
type runtime struct {
	cni  *libcni.CNIConfig
	conf *libcni.NetworkConfigList
	log  *os.File
	// annotations of a pod, by its UID.
	annotations map[string]map[string]string
}

func (n *Node) newRuntime() (*runtime, error) {
	one, err := libcni.ConfFromFile(n.pluginConf())
	if err != nil {
		return nil, fmt.Errorf("the generated configuration: %w", err)
	}
	list, err := libcni.ConfListFromConf(one)
	if err != nil {
		return nil, fmt.Errorf("the generated configuration: %w", err)
	}
	log, err := os.Create(n.pluginLog())
	if err != nil {
		return nil, err
	}
	path := append([]string{n.Bin}, n.Plugins...)
	r := &runtime{
		cni:  libcni.NewCNIConfigWithCacheDir(path, n.runtimeCache(), &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: log}}),
		conf: list, log: log, annotations: map[string]map[string]string{},
	}
	for _, pod := range n.folder.Pods() {
		r.annotations[pod.UID] = delivered(pod.Annotations)
	}
	return r, nil
}

// delivered are the annotations as the kubelet hands them to a runtime.
func delivered(own map[string]string) map[string]string {
	all := map[string]string{netspec.AnnotationConfigSource: "api"}
	maps.Copy(all, own)
	return all
}

// call is what containerd passes for a pod (runtimes: CNI_ARGS and capabilities).
func (r *runtime) call(pod Pod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: pod.ContainerID, NetNS: pod.NetNS, IfName: primaryInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", pod.Namespace},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", pod.ContainerID},
			{"K8S_POD_UID", pod.UID},
		},
		CapabilityArgs: map[string]any{config.PodAnnotationsCapability: r.annotations[pod.UID]},
	}
}

// primaryInterface is the runtime's name for the primary network's interface.
const primaryInterface = "eth0"

var errNoAddress = errors.New("the primary network gave no address: container runtimes refuse such a pod")

func (r *runtime) add(ctx context.Context, pod Pod) error {
	result, err := r.cni.AddNetworkList(ctx, r.conf, r.call(pod))
	if err != nil {
		return err
	}
	return hasAddress(result)
}

func (r *runtime) del(ctx context.Context, pod Pod) error {
	ctx, cancel := context.WithTimeout(ctx, delTime)
	defer cancel()
	return r.cni.DelNetworkList(ctx, r.conf, r.call(pod))
}
