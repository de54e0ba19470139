package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// nodeName is the name of every test's node, podNamespace that of its pods.
const (
	nodeName     = "node-1"
	podNamespace = "default"
)

// binDir, pluginDir and fakeDir hold the programs under test, the reference plugins
// and the fake plugin.
var binDir, pluginDir, fakeDir string

func TestMain(m *testing.M) { os.Exit(prepare(m.Run)) }

func prepare(run func() int) int {
	err := programs()
	if fakeDir != "" {
		defer os.RemoveAll(fakeDir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the node suite:", err)
		return 1
	}
	return run()
}

// programs finds the programs, and builds the fake plugin.
func programs() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: sudo make test")
	}
	for dir, at := range map[*string]string{&binDir: "../../bin", &pluginDir: "../../bin/cni"} {
		if *dir, err = filepath.Abs(at); err != nil {
			return err
		}
	}
	for _, name := range []string{"multus-shim", "multus-daemon", "multus", "passthru", "install_multus", "cni/bridge", "cni/macvlan", "cni/ptp", "cni/host-local", "cni/static", "cni/tuning"} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return fmt.Errorf("run 'make build plugins' first: %w", err)
		}
	}
	if fakeDir, err = os.MkdirTemp("", "fakeplugin"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(fakeDir, "fake"), "../../internal/testkit/fakeplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the fake plugin: %w: %s", err, out)
	}
	return nil
}

// object is JSON in a test.
type object = map[string]any

// setup is what a node begins with.
type setup struct {
	primary  func(*node) object // the primary network's file; bridged("primary", 1) where nil
	settings object             // over the rig's own in daemon-config.json, or in the thin plugin's configuration
	thin     bool
	noDaemon bool   // it is started later, by startDaemon, or not at all
	token    string // that the API server demands
	user     string // whose certificate it demands
}

// node is a node of one test.
type node struct {
	check.T
	dir      string
	bin      string // the folder of the plugin that the runtime runs
	ns       string // its network namespace
	api      *apiserver.Server
	settings object
	links    []string // before pods came
	daemon   *daemon  // nil where none runs
}

func newNode(t *testing.T, s setup) *node {
	t.Helper()
	n := &node{T: check.T{T: t}, dir: t.TempDir(), bin: binDir}
	for _, dir := range []string{"conf", "pods"} {
		n.Must(os.Mkdir(n.path(dir), 0o755))
	}
	n.write("log", "")
	ns, err := netns.Create(n.dir, "node")
	n.Must(err)
	n.ns = ns
	t.Cleanup(func() { n.Must(netns.Delete(ns)) })
	n.in(n.makeLinks)
	n.links = n.nodeLinks()
	start := apiserver.Start
	if s.token != "" || s.user != "" {
		start = apiserver.StartTLS // without it, clients send no credentials
	}
	n.in(func() (err error) { n.api, err = start("127.0.0.1"); return err })
	t.Cleanup(n.api.Close)
	n.api.RequireToken(s.token)
	n.api.RequireUser(s.user)
	kubeconfig, err := n.api.Kubeconfig(n.dir)
	n.Must(err)
	t.Cleanup(n.explain)
	primary := n.bridged("primary", 1)
	if s.primary != nil {
		primary = s.primary(n)
	}
	n.write("conf/10-primary.conflist", text(primary))
	n.settings = object{
		"cniVersion": "1.1.0", "cniConfigDir": n.path("conf"), "multusAutoconfigDir": n.path("conf"), "multusConfigFile": "auto",
		"socketDir": n.path("run"), "daemonSocketDir": n.path("run"), "cniDir": n.path("state"), "binDir": fakeDir, "confDir": n.path("confdir"),
		"kubeconfig": kubeconfig, "logLevel": "debug", "logToStderr": true, "daemonTimeout": "500ms",
	}
	maps.Copy(n.settings, s.settings)
	switch {
	case s.thin:
		n.writeThin()
	case !s.noDaemon:
		n.startDaemon()
	}
	return n
}

// makeLinks: loopback, and the interface eth1 that macvlan works on, which has a
// peer, gw1, with an address.
func (n *node) makeLinks() error {
	up := func(name string, more ...string) error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		for _, text := range more {
			addr, parseErr := netlink.ParseAddr(text)
			err = errors.Join(err, parseErr, netlink.AddrAdd(link, addr))
		}
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth1"
	return errors.Join(up("lo"), netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "gw1"}), up("eth1"), up("gw1", "10.20.0.1/24"))
}

// writeThin writes what the thin installation generates.
func (n *node) writeThin() {
	n.settings["type"], n.settings["name"] = "multus", config.DefaultNetworkName
	n.settings["clusterNetwork"] = n.path("conf/10-primary.conflist")
	capabilities := object{config.PodAnnotationsCapability: true}
	if more, ok := n.settings["capabilities"].(object); ok {
		maps.Copy(capabilities, more)
	}
	n.settings["capabilities"] = capabilities
	n.write("conf/00-multus.conf", text(n.settings))
}

// explain prints the logs of a test that failed.
func (n *node) explain() {
	for _, name := range []string{"daemon.log", "plugin.log"} {
		if raw, err := os.ReadFile(n.path(name)); err == nil && n.Failed() {
			n.Logf("%s:\n%s", name, raw)
		}
	}
}

// daemon is a running multus-daemon.
type daemon struct {
	*exec.Cmd
	ended chan error
}

// startDaemon starts the daemon and waits until it is ready.
func (n *node) startDaemon() {
	n.Helper()
	n.launchDaemon()
	n.eventually(func() error { return n.get(api.PathReadyz) })
}

func (n *node) launchDaemon() {
	n.Helper()
	n.write("daemon-config.json", text(n.settings))
	log, err := os.OpenFile(n.path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.Must(err)
	defer log.Close()
	d := &daemon{exec.Command(filepath.Join(binDir, "multus-daemon"), "-config", n.path("daemon-config.json")), make(chan error, 1)}
	d.Env, d.Stdout, d.Stderr = []string{"PATH=/usr/bin:/bin", "MULTUS_NODE_NAME=" + nodeName}, log, log
	n.in(d.Start)
	go func() { d.ended <- d.Wait() }()
	n.daemon = d
	n.Cleanup(func() {
		if n.daemon == d {
			n.stopDaemon(syscall.SIGKILL)
		}
	})
}

// stopDaemon sends a signal and waits for the end, which it returns.
func (n *node) stopDaemon(s os.Signal) error {
	n.Helper()
	d := n.daemon
	n.daemon = nil
	n.Must(d.Process.Signal(s))
	select {
	case err := <-d.ended:
		return err
	case <-time.After(20 * time.Second):
		n.Must(d.Process.Kill())
		n.Fatal("the daemon did not end in 20 s")
		return nil
	}
}

func (n *node) get(path string) error {
	_, err := n.fetch(path)
	return err
}

func (n *node) fetch(path string) (string, error) {
	client := api.NewClient(n.path("run"))
	defer client.Close()
	raw, err := client.Get(n.Context(), path)
	return string(raw), err
}

// metric waits until the daemon's metrics hold a line.
func (n *node) metric(line string) {
	n.Helper()
	n.eventually(func() error {
		all, err := n.fetch(api.PathMetrics)
		if err == nil && !strings.Contains(all, "\n"+line+"\n") {
			err = fmt.Errorf("no metric %q", line)
		}
		return err
	})
}

// pod is a pod with its sandbox.
type pod struct {
	Namespace, Name, UID, ContainerID, NetNS string
	Annotations                              map[string]string
	args                                     [][2]string // further pairs of CNI_ARGS
	// old stands for a runtime that hands over no annotations.
	old bool
}

// selecting are the annotations of a pod that selects networks.
func selecting(networks string) map[string]string {
	return map[string]string{netspec.AnnotationNetworks: networks}
}

// pod makes a pod, in the API too, and its sandbox.
func (n *node) pod(name string, annotations map[string]string) *pod {
	n.Helper()
	p := n.sandbox(name, annotations)
	n.api.PutPod(n.apiPod(p))
	return p
}

// sandbox makes a pod that the API does not have.
func (n *node) sandbox(name string, annotations map[string]string) *pod {
	n.Helper()
	ns, err := netns.Create(n.path("pods"), name)
	n.Must(err)
	n.Cleanup(func() { n.Must(netns.Delete(ns)) })
	return &pod{Namespace: podNamespace, Name: name, UID: "uid-" + name, ContainerID: fmt.Sprintf("%064x", name), NetNS: ns, Annotations: annotations}
}

func (n *node) apiPod(p *pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), Annotations: maps.Clone(p.Annotations)},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// nad puts a NetworkAttachmentDefinition.
func (n *node) nad(name string, conf object) {
	n.api.PutNAD(metav1.ObjectMeta{Namespace: podNamespace, Name: name}, text(conf))
}

// bridged is a network on a bridge, with the subnet 10.<net>.0.0/24 and an IPAM folder of its own.
func (n *node) bridged(name string, net int) object {
	return object{"cniVersion": "1.0.0", "name": name, "plugins": []any{object{
		"type": "bridge", "bridge": fmt.Sprintf("br%d", net), "isGateway": true, "ipam": n.hostLocal(net),
	}}}
}

func (n *node) hostLocal(net int) object {
	subnet := func(format string) []any { return []any{object{"subnet": fmt.Sprintf(format, net)}} }
	return object{"type": "host-local", "dataDir": n.path("ipam"), "ranges": []any{subnet("10.%d.0.0/24")}, "routes": []any{object{"dst": "0.0.0.0/0"}}}
}

// fake is a network of the fake plugin, which does as steps says.
func (n *node) fake(name string, steps object) object {
	return object{"cniVersion": "1.0.0", "name": name, "type": "fake", "fake": n.script(steps)}
}

// script is the fake plugin's own part of a configuration.
func (n *node) script(steps object) object {
	all := object{"log": n.path("log")}
	maps.Copy(all, steps)
	return all
}

// status is the network-status of a pod, with every MAC that is one as "mac".
func (n *node) status(p *pod) []netspec.StatusEntry {
	n.Helper()
	all := n.rawStatus(p)
	for i := range all {
		if all[i].MAC != "" {
			all[i].MAC = "mac"
		}
	}
	return all
}

func (n *node) rawStatus(p *pod) []netspec.StatusEntry {
	n.Helper()
	annotations, _ := n.api.Pod(p.Namespace, p.Name)["metadata"].(object)["annotations"].(object)
	raw, ok := annotations[netspec.AnnotationStatus].(string)
	if !ok {
		return nil
	}
	all, err := netspec.ParseStatus(raw)
	n.Must(err)
	return all
}

// facts are what is seen of an interface of a pod.
func (n *node) facts(p *pod, ifName string) attach.Facts {
	n.Helper()
	f, err := netns.New("").Facts(n.Context(), p.NetNS, ifName)
	n.Must(err)
	return f
}

func (n *node) podLinks(p *pod) []string {
	n.Helper()
	all, err := netns.New("").Interfaces(n.Context(), p.NetNS)
	n.Must(err)
	return all
}

func (n *node) nodeLinks() []string {
	n.Helper()
	all, err := netns.New("").Interfaces(n.Context(), n.ns)
	n.Must(err)
	return all
}

// leases are the addresses that host-local has given out.
func (n *node) leases() []string { return n.files("ipam", "lock", "last_reserved_ip.") }

// files are the names of the files below a folder, without those that begin so.
func (n *node) files(dir string, without ...string) (names []string) {
	n.Helper()
	n.Must(filepath.WalkDir(n.path(dir), func(path string, d fs.DirEntry, err error) error {
		skipped := func(prefix string) bool { return strings.HasPrefix(filepath.Base(path), prefix) }
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() && !slices.ContainsFunc(without, skipped) {
			names = append(names, filepath.Base(path))
		}
		return err
	}))
	return names
}

// entries are the names in a folder.
func (n *node) entries(dir string) (names []string) {
	n.Helper()
	all, err := os.ReadDir(n.path(dir))
	n.Must(err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// removeSandbox takes a pod's namespace away.
func (n *node) removeSandbox(p *pod) {
	n.Helper()
	n.Must(netns.Delete(p.NetNS))
}

// clean demands that nothing is left of any pod: no record, no lock, no lease, no
// interface on the node but bridges.
func (n *node) clean() {
	n.Helper()
	left := object{"records and locks": n.files("state", ".gc", ".damaged"), "leases": n.leases(), "links": slices.DeleteFunc(n.nodeLinks(), func(name string) bool {
		return strings.HasPrefix(name, "br") || slices.Contains(n.links, name)
	})}
	none := object{"records and locks": []string(nil), "leases": []string(nil), "links": []string{}}
	if diff := cmp.Diff(none, left); diff != "" {
		n.Errorf("something is left on the node (-want +got):\n%s", diff)
	}
}

// record is what the ledger remembers of a pod.
func (n *node) record(p *pod) (attach.Record, error) {
	return n.ledger().Load(p.ContainerID)
}

// age makes records older than what protects them: the grace of GC, the time in which a
// report may be on the way, and that after which an unfinished one is overdue.
func (n *node) age(pods ...*pod) {
	n.Helper()
	for _, p := range pods {
		rec, err := n.record(p)
		n.Must(err)
		rec.Created = rec.Created.Add(-time.Hour)
		n.Must(n.ledger().Save(rec, false))
		if lock := n.path("state/.lock/" + p.ContainerID); rec.State != attach.Attached {
			n.Must(os.Chtimes(lock, time.Time{}, rec.Created))
		}
	}
}

func (n *node) ledger() *ledger.Ledger { return ledger.New(n.path("state"), ledger.BootID()) }

// loseAddress takes the addresses off an interface of a pod.
func (n *node) loseAddress(p *pod, ifName string) {
	n.Helper()
	n.Must(netns.Do(p.NetNS, func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(link, netlink.FAMILY_V4)
		for _, a := range all {
			err = errors.Join(err, netlink.AddrDel(link, &a))
		}
		return err
	}))
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, content string) {
	n.Helper()
	n.Must(os.WriteFile(n.path(name), []byte(content), 0o600))
}

func (n *node) read(name string) string {
	n.Helper()
	raw, err := os.ReadFile(n.path(name))
	n.Must(err)
	return string(raw)
}

// in runs f in the node's network namespace.
func (n *node) in(f func() error) {
	n.Helper()
	n.Must(netns.Do(n.ns, f))
}

// eventually polls until f succeeds, for 15 s at most.
func (n *node) eventually(f func() error) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 15*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			n.Fatal("not in 15 s: ", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// exists is a condition for eventually.
func (n *node) exists(name string) func() error {
	return func() error {
		_, err := os.Stat(n.path(name))
		return err
	}
}

func text(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a mistake of the test
	}
	return out.String()
}
