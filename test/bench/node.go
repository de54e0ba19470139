package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

// The cluster of the budgets.
const (
	localPods = 250
	manyNADs  = 5000
	nodeName  = "n1"
	token     = "bench"
)

// node is a node with its API server, ready for a daemon.
type node struct {
	dir, bin   string
	api        *apiserver.Server
	kubeconfig string
	netns      string  // that of all pods, one after the other
	daemon     *daemon // nil while none runs
	mounts     []string
}

// The networks of the node. Their interfaces and bridges are on the bench's own
// network namespace; addresses are kept in the temporary folder.
const (
	primaryText = `{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":"%[1]s/ipam","ranges":[[{"subnet":"10.244.0.0/22"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
	bridgeText = `{"cniVersion":"1.0.0","name":"bridged","plugins":[{"type":"bridge","bridge":"br1",
		"ipam":{"type":"host-local","dataDir":"%[1]s/ipam","ranges":[[{"subnet":"10.1.0.0/22"}]]}}]}`
	macvlanText = `{"cniVersion":"1.0.0","name":"macvlan","plugins":[{"type":"macvlan","master":"uplink",
		"ipam":{"type":"host-local","dataDir":"%[1]s/ipam","ranges":[[{"subnet":"10.2.0.0/22"}]]}}]}`
	slowText = `{"cniVersion":"1.0.0","name":"slow","plugins":[{"type":"macvlan","master":"uplink","ipam":{"type":"slow-ipam"}}]}`
	noopText = `{"cniVersion":"1.0.0","name":"noop","type":"noop"}`
)

// noopPlugin does nothing, and leaves what processor time the threads of its caller
// have used, in nanoseconds.
const noopPlugin = `#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
cat /proc/$PPID/task/*/schedstat >"${0%/bin/noop}/clock.$CNI_CONTAINERID"
echo '{"cniVersion":"1.0.0"}'
`

// slowIPAM takes 200 ms to give an address.
const slowIPAM = `#!/bin/sh
cat >/dev/null
[ "$CNI_COMMAND" = ADD ] || exit 0
sleep 0.2
echo "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.3.${CNI_IFNAME##*[a-z]}.2/24\"}]}"
`

func newNode(dir, bin string) (*node, error) {
	n := &node{dir: dir, bin: bin}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "wire"}); err != nil {
		return nil, fmt.Errorf("the interface uplink: %w", err)
	}
	var err error
	if n.netns, err = netns.Create(filepath.Join(dir, "netns"), "pod"); err != nil {
		return nil, err
	}
	if err := n.writeFiles(); err != nil {
		return nil, err
	}
	if n.api, err = apiserver.StartTLS("127.0.0.1"); err != nil {
		return nil, err
	}
	n.api.RequireToken(token)
	n.kubeconfig, err = n.api.Kubeconfig(dir)
	n.fill()
	return n, err
}

func (n *node) close() error {
	n.stop()
	n.api.Close()
	err := netns.Delete(n.netns)
	for _, dir := range n.mounts {
		err = errors.Join(err, unix.Unmount(dir, 0))
	}
	return err
}

// stop ends the daemon, if it runs.
func (n *node) stop() {
	if n.daemon != nil {
		n.daemon.stop()
		n.daemon = nil
	}
}

// running starts the daemon, unless it runs.
func (n *node) running(ctx context.Context) (*daemon, error) {
	if n.daemon != nil {
		return n.daemon, nil
	}
	d, err := n.start(ctx)
	if err == nil {
		n.daemon = d
	}
	return d, err
}

// restarted is a daemon that has done nothing yet.
func (n *node) restarted(ctx context.Context) (*daemon, error) {
	n.stop()
	return n.running(ctx)
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) writeFiles() error {
	settings, err := json.Marshal(map[string]any{
		"kubeconfig": n.path("kubeconfig"), "multusConfigFile": "auto", "logLevel": "verbose", "logToStderr": true,
		"cniConfigDir": n.path("net.d"), "multusAutoconfigDir": n.path("net.d"), "hostCniConfigDir": n.path("net.d"),
		"socketDir": n.path("socket"), "daemonSocketDir": n.path("socket"),
		"cniDir": n.path("cni"), "binDir": filepath.Join(n.bin, "cni"),
	})
	err = errors.Join(err, os.Mkdir(n.path("net.d"), 0o755), os.Mkdir(n.path("bin"), 0o755))
	for name, text := range map[string]string{
		"net.d/10-main.conflist": n.text(primaryText), "daemon-config.json": string(settings), "bin/slow-ipam": slowIPAM, "bin/noop": noopPlugin,
	} {
		err = errors.Join(err, os.WriteFile(n.path(name), []byte(text), 0o755))
	}
	return err
}

// text is a network's configuration with this node's folder in it.
func (n *node) text(network string) string {
	if !strings.Contains(network, "%[1]s") {
		return network
	}
	return fmt.Sprintf(network, n.dir)
}

// podNames of the pods that are measured; the others make up the number.
const (
	plainPod  = "plain"  // the primary network
	threePod  = "three"  // and two more
	manyPod   = "many"   // and eight slow ones
	noopPod   = "noop"   // one network whose plugin does nothing
	burstPods = "burst-" // three of those
)

func (n *node) fill() {
	for name, text := range map[string]string{"bridged": bridgeText, "macvlan": macvlanText, "slow": slowText, "noop": noopText} {
		n.api.PutNAD(metav1.ObjectMeta{Namespace: "kube-system", Name: name}, n.text(text))
	}
	const config = `{"cniVersion":"0.3.1","name":"tenant-%05d","plugins":[{"type":"macvlan","master":"bond0.%d","mode":"bridge","mtu":9000,` +
		`"ipam":{"type":"whereabouts","range":"10.%d.%d.0/24","gateway":"10.%[3]d.%[4]d.1","exclude":["10.%[3]d.%[4]d.0/30"],"routes":[{"dst":"10.0.0.0/8"}]}},{"type":"tuning","capabilities":{"mac":true}}]}`
	for i := range manyNADs {
		text := fmt.Sprintf(config, i, i%4000, i/250, i%250)
		n.api.PutNAD(metav1.ObjectMeta{
			Namespace: fmt.Sprintf("tenant-%03d", i%300), Name: fmt.Sprintf("network-%05d", i),
			Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": text},
			ManagedFields: managed(),
		}, text)
	}
	n.putPod(plainPod, nil)
	n.putPod(threePod, map[string]string{netspec.AnnotationNetworks: "kube-system/bridged,kube-system/macvlan"})
	n.putPod(manyPod, map[string]string{netspec.AnnotationNetworks: strings.Repeat("kube-system/slow,", 7) + "kube-system/slow"})
	n.putPod(noopPod, map[string]string{netspec.AnnotationDefaultNetwork: "kube-system/noop"})
	for i := range localPods {
		n.putPod(fmt.Sprint(burstPods, i), map[string]string{
			netspec.AnnotationDefaultNetwork: "kube-system/noop", netspec.AnnotationNetworks: "kube-system/noop,kube-system/noop",
		})
	}
}

func managed() []metav1.ManagedFieldsEntry {
	fields := metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:` + strings.Repeat("x", 400) + `":{}}},"f:spec":{".":{},"f:config":{}}}`)
	return []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply", Operation: "Update", FieldsV1: fields}}
}

func (n *node) putPod(name string, annotations map[string]string) {
	n.api.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: annotations, ManagedFields: managed(),
			Labels: map[string]string{"app": "bench", "pod-template-hash": "7d9c8b6f5d"},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}}},
	})
}

// daemon is a running multus-daemon.
type daemon struct {
	cmd    *exec.Cmd
	group  *cgroup // nil where there is none
	client *api.Client
	// ready is how long it took from its start to readiness.
	ready time.Duration
}

// start runs the daemon until it is ready. It is a copy of the binary that is not in
// the page cache, so that the pages of its text count as its own.
func (n *node) start(ctx context.Context) (*daemon, error) {
	binary := n.path("multus-daemon")
	if err := coldCopy(binary, filepath.Join(n.bin, "multus-daemon")); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d := &daemon{group: newCgroup(), client: api.NewClient(n.path("socket"))}
	d.cmd = exec.Command(binary, "-config", n.path("daemon-config.json"))
	if d.group != nil { // the shell joins the group and becomes the daemon
		d.cmd = exec.Command("/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, d.group.procs(), binary, "-config", n.path("daemon-config.json"))
	}
	d.cmd.Env = append(os.Environ(), "MULTUS_NODE_NAME="+nodeName)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	if err := d.waitReady(ctx); err != nil {
		d.stop()
		return nil, fmt.Errorf("%w: %w; it says: %s", errNotReady, err, lastLine(log.Name()))
	}
	d.ready = time.Since(begin)
	return d, nil
}

var errNotReady = errors.New("the daemon is not ready within a minute")

// lastLine of a log.
func lastLine(file string) string {
	text, _ := os.ReadFile(file) // none: it said nothing
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

func (d *daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		_, err := d.client.Get(ctx, api.PathReadyz)
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (d *daemon) stop() {
	d.client.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // one that ended already is what we want
	_ = d.cmd.Wait()                          // how it ends is not measured
	if d.group != nil {
		d.group.remove()
	}
}

// startToReady starts the daemon beside an API server that answers.
func startToReady(ctx context.Context, t *table, n *node) error {
	d, err := n.restarted(ctx)
	if err != nil {
		return err
	}
	t.compare("daemon: start to ready", d.ready.Seconds(), 1, "%.2f s", "")
	return nil
}
