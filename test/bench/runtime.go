package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
)

// runtime attaches pods as a container runtime does, through libcni. Its networks
// are attached one after the other: that of the plugin alone, or those of the
// delegates.
type runtime struct {
	cni      *libcni.CNIConfig
	networks []*libcni.NetworkConfigList
	netns    string
}

func (n *node) runtime(cache string, networks ...*libcni.NetworkConfigList) *runtime {
	log, err := os.OpenFile(n.path("plugins.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log = os.Stderr
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: log}}
	return &runtime{libcni.NewCNIConfigWithCacheDir(n.pluginPath(), n.path(cache), exec), networks, n.netns}
}

// pluginPath is CNI_PATH: Multus, its delegates, and the bench's own.
func (n *node) pluginPath() []string {
	return []string{n.bin, filepath.Join(n.bin, "cni"), n.path("bin")}
}

// direct runs the delegates of the given configurations.
func (n *node) direct(texts ...string) (*runtime, error) {
	var networks []*libcni.NetworkConfigList
	for _, text := range texts {
		list, err := libcni.NetworkConfFromBytes([]byte(n.text(text)))
		if err != nil {
			return nil, err
		}
		networks = append(networks, list)
	}
	return n.runtime("direct", networks...), nil
}

// generated is the configuration that the daemon has written, with edits.
func (n *node) generated(edit func(cniconf.Object) cniconf.Object) (cniconf.Object, error) {
	text, err := os.ReadFile(n.path("net.d/00-multus.conf"))
	if err != nil {
		return cniconf.Object{}, err
	}
	o, err := cniconf.ParseObject(text)
	if err != nil {
		return cniconf.Object{}, fmt.Errorf("the generated configuration %w", err)
	}
	return edit(o), nil
}

// plugin runs Multus as the runtime's only network.
func (n *node) plugin(edit func(cniconf.Object) cniconf.Object) (*runtime, error) {
	o, err := n.generated(edit)
	if err != nil {
		return nil, err
	}
	one, err := libcni.NetworkPluginConfFromBytes(o.Bytes())
	if err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromConf(one)
	if err != nil {
		return nil, err
	}
	return n.runtime("runtime", list), nil
}

func thick(o cniconf.Object) cniconf.Object { return o }

// thin makes the configuration one of the thin plugin, on the same ledger.
func (n *node) thin(o cniconf.Object) cniconf.Object {
	return o.Without("host", "daemonSocketDir").With("type", cniconf.Quote("multus")).With("kubeconfig", cniconf.Quote(n.kubeconfig))
}

// parallelism sets attachParallelism.
func parallelism(most int) func(cniconf.Object) cniconf.Object {
	return func(o cniconf.Object) cniconf.Object { return o.With("attachParallelism", cniconf.Quote(most)) }
}

// call is what containerd passes for a pod.
func (n *node) call(pod, containerID, ifName string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: containerID, NetNS: n.netns, IfName: ifName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", pod},
			{"K8S_POD_INFRA_CONTAINER_ID", containerID},
			{"K8S_POD_UID", "uid-" + pod},
		},
		CapabilityArgs: map[string]any{config.PodAnnotationsCapability: n.annotations(pod)},
	}
}

// annotations are the pod's as the kubelet delivers them.
func (n *node) annotations(pod string) map[string]string {
	all := map[string]string{netspec.AnnotationConfigSource: "api"}
	stored, _ := n.api.Pod("default", pod)["metadata"].(map[string]any)["annotations"].(map[string]any)
	for key, value := range stored {
		if text, ok := value.(string); ok && key != netspec.AnnotationStatus {
			all[key] = text
		}
	}
	return all
}

// ifName of the network with this place in the order.
func ifName(i int) string {
	if i == 0 {
		return "eth0"
	}
	return fmt.Sprintf("net%d", i)
}

func (r *runtime) add(ctx context.Context, n *node, pod, containerID string) error {
	for i, network := range r.networks {
		if _, err := r.cni.AddNetworkList(ctx, network, n.call(pod, containerID, ifName(i))); err != nil {
			return fmt.Errorf("ADD of network %s: %w", network.Name, err)
		}
	}
	return nil
}

func (r *runtime) del(ctx context.Context, n *node, pod, containerID string) error {
	for i, network := range slices.Backward(r.networks) {
		if err := r.cni.DelNetworkList(ctx, network, n.call(pod, containerID, ifName(i))); err != nil {
			return fmt.Errorf("DEL of network %s: %w", network.Name, err)
		}
	}
	return nil
}

// environ is the environment of a call of a plugin that the bench starts itself.
func (n *node) environ(verb, pod, containerID string) []string {
	c := n.call(pod, containerID, "eth0")
	var args []string
	for _, a := range c.Args {
		args = append(args, a[0]+"="+a[1])
	}
	return append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+containerID, "CNI_NETNS="+n.netns, "CNI_IFNAME=eth0",
		"CNI_PATH="+strings.Join(n.pluginPath(), ":"), "CNI_ARGS="+strings.Join(args, ";"))
}

// stdin is a plugin's standard input, as libcni makes it.
func (n *node) stdin(o cniconf.Object, pod string) []byte {
	return o.With("runtimeConfig", cniconf.Quote(map[string]any{config.PodAnnotationsCapability: n.annotations(pod)})).Bytes()
}
