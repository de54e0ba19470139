package node_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/netspec"
)

// nodeNAD puts a definition into Multus's own namespace.
func (n *node) nodeNAD(name string, conf object) {
	n.api.PutNAD(metav1.ObjectMeta{Namespace: "kube-system", Name: name}, text(conf))
}

// The primary network in its four forms. A plain pod gets it with the daemon away too.
func TestC1_3ClusterNetworkForms(t *testing.T) {
	forms := map[string]struct {
		make func(n *node) (value string)
		name string // in the status
	}{
		"definition": {func(n *node) string { n.nodeNAD("main", n.bridged("inside", 7)); return "main" }, "kube-system/main"},
		"name in confDir": {func(n *node) string {
			n.Must(os.Mkdir(n.path("confdir"), 0o755))
			n.write("confdir/50-any.conflist", text(n.bridged("main", 7)))
			return "main"
		}, "main"},
		"folder": {func(n *node) string {
			n.Must(os.Mkdir(n.path("folder"), 0o755))
			n.write("folder/20-b.conflist", text(n.bridged("other", 8)))
			n.write("folder/10-a.conflist", text(n.bridged("main", 7)))
			return n.path("folder")
		}, "main"},
		"file": {func(n *node) string {
			n.write("any.conflist", text(n.bridged("main", 7)))
			return n.path("any.conflist")
		}, "main"},
	}
	for name, form := range forms {
		for mode, thin := range map[string]bool{"thick": false, "thin": true} {
			t.Run(name+" "+mode, func(t *testing.T) {
				n := newNode(t, setup{noDaemon: true})
				n.settings["clusterNetwork"] = form.make(n)
				if thin {
					value := n.settings["clusterNetwork"]
					n.writeThin()
					n.settings["clusterNetwork"] = value
					n.write("conf/00-multus.conf", text(n.settings))
				} else {
					n.startDaemon()
				}
				p, plain := threeNetworks(n), n.pod("plain", nil)
				n.Same("the address", []string{"10.7.0.2/24"}, n.attach(p))
				n.Same("networks of the status", form.name+" default/lan default/p2p", networksOf(n.status(p)))
				if !thin {
					n.Must(n.stopDaemon(syscall.SIGTERM))
				}
				n.Same("a plain pod's address", []string{"10.7.0.3/24"}, n.attach(plain))
				n.detach(plain)
				n.detach(p)
				n.clean()
			})
		}
	}
}

// The node's further networks, and the pod's wish for another primary one (contract 1.4,
// ADD, 3 to 5).
func TestC1_4NetworksInTheirOrder(t *testing.T) {
	for mode, thin := range map[string]bool{"thick": false, "thin": true} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, setup{thin: thin, settings: object{"defaultNetworks": []string{"second"}, "systemNamespaces": []string{"system"}}})
			n.nodeNAD("second", n.bridged("second", 2))
			n.nodeNAD("instead", n.bridged("instead", 3))
			n.nad("own", n.bridged("own", 4))
			system, plain := n.sandbox("system", nil), n.pod("plain", nil)
			system.Namespace = "system"
			n.api.PutPod(n.apiPod(system))
			annotations := selecting("own")
			annotations[netspec.AnnotationDefaultNetwork] = "instead"
			chosen := n.pod("chosen", annotations)
			for p, want := range map[*pod]string{
				system: "primary eth0", plain: "primary eth0, kube-system/second net1",
				chosen: "kube-system/instead eth0, kube-system/second net1, default/own net2",
			} {
				n.attach(p)
				n.eventually(func() error { return n.hasStatus(p) })
				var got []string
				for _, e := range n.status(p) {
					got = append(got, e.Name+" "+e.Interface)
				}
				n.Same("the networks of "+p.Name, want, strings.Join(got, ", "))
			}
			for _, p := range []*pod{system, plain, chosen} {
				n.detach(p)
			}
			if !thin { // without the daemon nobody gets less than all
				n.Must(n.stopDaemon(syscall.SIGTERM))
				_, err := n.add(plain)
				n.fails(err, types.ErrTryAgainLater, n.path("run/multus.sock"))
				n.attach(system)
				n.detach(system)
			}
			n.clean()
		})
	}
}

// Where things are, and who may read them (contract 1.9): nobody but root reads a file that
// a daemon and its plugins make, whatever the umask is.
func TestC1_9FilesAndTheirModes(t *testing.T) {
	n := newNode(t, setup{noDaemon: true})
	n.settings["logFile"], n.settings["logOptions"] = n.path("logs/multus.log"), object{"maxSize": 1, "compress": false}
	n.Must(os.Mkdir(n.path("logs"), 0o755))
	full := strings.Repeat("a line that was there before\n", 1<<20/29)
	n.write("logs/multus.log", full)
	n.Must(os.Chmod(n.path("logs/multus.log"), 0o600))
	defer syscall.Umask(syscall.Umask(0))
	n.startDaemon()
	p := threeNetworks(n)
	n.attach(p)
	n.write("state/broken", "{")
	n.Must(n.del(&pod{Namespace: podNamespace, Name: "gone", ContainerID: "broken", NetNS: p.NetNS}))
	stamp := regexp.MustCompile(`-20[-:T\d]+\.\d+|\.\d+$`) // of rotated logs, of damaged records
	modes := map[string]string{}
	for _, dir := range []string{"conf", "state", "run", "logs"} {
		n.Must(filepath.WalkDir(n.path(dir), func(path string, d fs.DirEntry, err error) error {
			n.Must(err)
			info, err := d.Info()
			modes[stamp.ReplaceAllString(strings.TrimPrefix(path, n.dir+"/"), "-TIME")] = info.Mode().String()
			return err
		}))
	}
	want := map[string]string{
		"conf/00-multus.conf": "-rw-------", "state": "drwx------", "state/" + p.ContainerID: "-rw-------", "state/results": "drwx------",
		"run": "drwx------", "run/multus.sock": "Srw-------", "logs/multus.log": "-rw-------", "logs/multus-TIME.log": "-rw-------",
		"state/.lock": "drwx------", "state/.lock/.gc": "-rw-------", "state/.damaged": "drwx------", "state/.damaged/broken-TIME": "-rw-------",
	}
	for network, ifName := range map[string]string{"primary": "eth0", "lan": "lan0", "p2p": "net2"} {
		want["state/results/"+network+"-"+p.ContainerID+"-"+ifName] = "-rw-------"
	}
	maps.DeleteFunc(modes, func(path, _ string) bool {
		return path == "conf" || path == "logs" || path == "conf/10-primary.conflist"
	})
	n.Same("files", want, modes)
	n.Must(os.RemoveAll(n.path("state/.damaged")))
	n.detach(p)
	n.clean()
}
