package lab

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed conf
var conf embed.FS

// confFile is a file of conf; replace are pairs for [strings.NewReplacer].
func confFile(name string, replace ...string) ([]byte, error) {
	text, err := conf.ReadFile("conf/" + name)
	return []byte(strings.NewReplacer(replace...).Replace(string(text))), err
}

// spec of the machine as it is started next.
func (m Machine) spec() (spec, error) {
	groups, err := m.cluster.machineCgroups(m.Name)
	t := m.cluster.settings.Tools
	s := spec{Hostname: m.Name, Cgroups: groups, Path: t.path()}
	if m.number == 0 {
		s.Programs, s.Forward = controlPlanePrograms(), "127.0.0.1:6443"
		s.Disks = []disk{
			{Path: "/etc/kubernetes/pki", Folder: string(m.cluster.pki())},
			{Path: "/var/lib/etcd", Folder: m.folder("etcd")},
		}
	} else {
		s.Programs = nodePrograms(m.Name, nodeIP(m.number))
		s.Disks = []disk{
			{Path: "/etc", Folder: m.folder("etc"), Lower: "/etc"},
			{Path: "/etc/kubernetes/manifests", Folder: m.folder("manifests")},
			{Path: "/opt/cni/bin", Folder: m.folder("cni-bin"), Lower: t.CNI},
			{Path: "/var/lib/cni", Folder: m.folder("cni")},
			{Path: "/var/lib/containerd", Folder: m.folder("containerd")},
			{Path: "/var/lib/kubelet", Folder: m.folder("kubelet")},
		}
	}
	s.Disks = append(s.Disks, disk{Path: "/var/log", Folder: m.Logs()})
	for _, dir := range []string{t.Kube, t.Runtime, t.Crictl} { // at the paths that they have here
		s.Disks = append(s.Disks, disk{Path: dir, Folder: dir})
	}
	return s, err
}

// controlPlanePrograms have the default settings, but for these: etcd does not wait
// for the disk; nobody elects a leader; the controller manager may make its requests
// at once, which saves the first ServiceAccount (and pod) five seconds.
func controlPlanePrograms() []program {
	const etcd, keys = "127.0.0.1:2379", "/etc/kubernetes/pki/"
	args := func(line string) []string {
		return strings.Fields(strings.NewReplacer("@ETCD@", "http://"+etcd, "@KEYS@", keys).Replace(line))
	}
	// Certificates that are asked for last two minutes, so that renewals can be watched.
	return []program{
		{Name: "etcd", Args: args(`etcd --name lab --data-dir /var/lib/etcd --unsafe-no-fsync --log-level warn
			--listen-client-urls @ETCD@ --advertise-client-urls @ETCD@
			--listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380
			--initial-cluster lab=http://127.0.0.1:2380`)},
		{Name: "kube-apiserver", After: "tcp:" + etcd, Args: args(`kube-apiserver --v=1 --etcd-servers @ETCD@ --profiling=false
			--bind-address 0.0.0.0 --secure-port 6443 --advertise-address ` + controlPlaneIP + ` --service-cluster-ip-range ` + serviceRange + `
			--authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true
			--tls-cert-file @KEYS@apiserver.crt --tls-private-key-file @KEYS@apiserver.key --client-ca-file @KEYS@ca.crt
			--service-account-issuer https://kubernetes.default.svc.cluster.local
			--service-account-key-file @KEYS@service-account.pub --service-account-signing-key-file @KEYS@service-account.key
			--kubelet-certificate-authority @KEYS@ca.crt --kubelet-preferred-address-types InternalIP
			--kubelet-client-certificate @KEYS@apiserver-kubelet-client.crt --kubelet-client-key @KEYS@apiserver-kubelet-client.key
			--requestheader-client-ca-file @KEYS@front-proxy-ca.crt --requestheader-allowed-names front-proxy-client
			--requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group
			--requestheader-extra-headers-prefix X-Remote-Extra-
			--proxy-client-cert-file @KEYS@front-proxy-client.crt --proxy-client-key-file @KEYS@front-proxy-client.key`)},
		{Name: "kube-controller-manager", After: "tcp:127.0.0.1:6443", Args: args(`kube-controller-manager --v=1
			--kubeconfig @KEYS@controller-manager.kubeconfig --use-service-account-credentials --kube-api-qps 300 --kube-api-burst 500
			--service-account-private-key-file @KEYS@service-account.key --root-ca-file @KEYS@ca.crt
			--cluster-signing-cert-file @KEYS@ca.crt --cluster-signing-key-file @KEYS@ca.key
			--cluster-signing-duration 2m --leader-elect=false --bind-address 127.0.0.1`)},
		{Name: "kube-scheduler", After: "tcp:127.0.0.1:6443", Args: args(`kube-scheduler --v=1 --kubeconfig @KEYS@scheduler.kubeconfig
			--authentication-kubeconfig @KEYS@scheduler.kubeconfig --authorization-kubeconfig @KEYS@scheduler.kubeconfig
			--leader-elect=false --bind-address 127.0.0.1`)},
	}
}

// nodePrograms start in the order that systemd has on a real node: the kubelet after
// the runtime, and neither after anything that runs in a pod.
func nodePrograms(name, ip string) []program {
	return []program{
		{Name: "containerd", Args: []string{"containerd", "--config", "/etc/containerd/config.toml"}},
		{Name: "kubelet", After: "unix:/run/containerd/containerd.sock", Args: []string{
			"kubelet", "--v=2", "--config", "/etc/kubernetes/kubelet.yaml",
			"--kubeconfig", "/etc/kubernetes/kubelet.kubeconfig", "--hostname-override", name, "--node-ip", ip,
		}},
		{Name: "kube-proxy", Args: []string{
			"kube-proxy", "--v=1", "--config", "/etc/kubernetes/kube-proxy.yaml", "--hostname-override", name,
		}},
	}
}

// provision fills a node's /etc where it has none yet.
func (m Machine) provision(o BootOptions) error {
	etc := m.folder("etc", "upper")
	if o.VolatileEtc {
		if err := os.RemoveAll(etc); err != nil {
			return err
		}
	}
	if _, err := os.Stat(etc); err == nil {
		return nil
	}
	files, err := m.etcFiles()
	if err != nil {
		return err
	}
	fresh := m.folder("etc", "new")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	for name, content := range files {
		path, mode := filepath.Join(fresh, name), os.FileMode(0o644)
		if strings.HasPrefix(name, "kubernetes/") { // keys are there
			mode = 0o600
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return err
		}
	}
	// This machine may have such folders of its own, which must not show through.
	for _, name := range []string{"kubernetes", "cni", "containerd"} {
		if err := unix.Setxattr(filepath.Join(fresh, name), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("the state folder cannot hold an overlay's changes: %w", err)
		}
	}
	return os.Rename(fresh, etc)
}

// etcFiles are a node's files, by path below /etc.
func (m Machine) etcFiles() (map[string][]byte, error) {
	runtimeConf := "containerd.toml"
	if m.cluster.settings.Runtime == Debian {
		runtimeConf = "debian.toml"
	}
	keys := m.cluster.pki()
	files := map[string][]byte{
		"hostname":    []byte(m.Name + "\n"),
		"hosts":       fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", nodeIP(m.number), m.Name),
		"resolv.conf": nil,
		"crictl.yaml": []byte("runtime-endpoint: unix:///run/containerd/containerd.sock\ntimeout: 10\n"),
	}
	for name, read := range map[string]func() ([]byte, error){
		"cni/net.d/10-bridge.conflist":     func() ([]byte, error) { return confFile("10-bridge.conflist", "@PODS@", podRange(m.number)) },
		"containerd/config.toml":           func() ([]byte, error) { return confFile(runtimeConf, "@PAUSE@", PauseImage) },
		"kubernetes/kubelet.yaml":          func() ([]byte, error) { return confFile("kubelet.yaml") },
		"kubernetes/kube-proxy.yaml":       func() ([]byte, error) { return confFile("kube-proxy.yaml") },
		"kubernetes/kubelet.kubeconfig":    func() ([]byte, error) { return keys.kubeconfig(m.Name, apiServer) },
		"kubernetes/kube-proxy.kubeconfig": func() ([]byte, error) { return keys.kubeconfig("kube-proxy", apiServer) },
		"kubernetes/ca.crt":                func() ([]byte, error) { return os.ReadFile(keys.path("ca.crt")) },
		"kubernetes/serving.crt":           func() ([]byte, error) { return os.ReadFile(keys.path(m.Name + "-serving.crt")) },
		"kubernetes/serving.key":           func() ([]byte, error) { return os.ReadFile(keys.path(m.Name + "-serving.key")) },
	} {
		content, err := read()
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	return files, nil
}
