package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Runtime is a container runtime with its runc.
type Runtime string

const (
	// Containerd is the one of nodetools/go.mod.
	Containerd Runtime = "containerd"
	// Debian is the containerd that Debian ships: 1.6, in version 12.
	Debian Runtime = "debian"
)

// tools are the folders of the programs of a cluster.
type tools struct {
	Kube    string // etcd and every program of Kubernetes
	Runtime string // containerd, its shim, ctr, runc
	Crictl  string
	CNI     string // the reference plugins
	Busybox string
}

// Folders of the Go modules, below the checkout.
const (
	hyperkube = "test/cluster/hyperkube"
	nodetools = "test/cluster/nodetools"
)

// packages of Debian that running needs (kube-proxy, kubelet, the plugin portmap; kmod and
// procps for those who look), and building (runc is C in part).
var packages = []string{"iptables", "nftables", "conntrack", "ethtool", "iproute2", "kmod", "procps", "gcc", "libc6-dev", "libseccomp-dev", "pkg-config"}

// tools builds what is not in the cache yet.
func (c cache) tools(ctx context.Context, r Runtime) (tools, error) {
	versions, err := readVersions(c.source)
	if err != nil {
		return tools{}, err
	}
	if err := c.install(ctx); err != nil {
		return tools{}, err
	}
	artifacts := []artifact{versions.kube(), versions.containerd(), crictl(), versions.plugins(), busybox()}
	if r == Debian {
		artifacts[1] = debianRuntime()
	}
	dirs := make([]string, len(artifacts))
	for i, a := range artifacts {
		if dirs[i], err = c.get(ctx, a); err != nil {
			return tools{}, err
		}
	}
	return tools{Kube: dirs[0], Runtime: dirs[1], Crictl: dirs[2], CNI: dirs[3], Busybox: dirs[4]}, nil
}

// install installs those of the packages that are missing.
func (c cache) install(ctx context.Context) error {
	var missing []string
	for _, name := range packages {
		status, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Status}", name).Output()
		if err != nil || string(status) != "install ok installed" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	c.report("installing %s", strings.Join(missing, " "))
	install := append([]string{"apt-get", "install", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, missing...)
	for _, args := range [][]string{{"apt-get", "update", "-qq"}, install} {
		if err := c.run(ctx, step{Env: []string{"DEBIAN_FRONTEND=noninteractive"}, Args: args}, c.source); err != nil {
			return fmt.Errorf("the packages %s are needed: %w", strings.Join(missing, " "), err)
		}
	}
	return nil
}

// versions of modules, by path.
type versions map[string]string

func readVersions(source string) (versions, error) {
	all := versions{}
	for _, module := range []string{hyperkube, nodetools} {
		text, err := os.ReadFile(filepath.Join(source, module, "go.mod"))
		if err != nil {
			return nil, fmt.Errorf("the cluster is built from a checkout: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(strings.TrimPrefix(line, "require "))
			if len(words) >= 2 && strings.HasPrefix(words[1], "v") {
				all[words[0]] = words[1]
			}
		}
	}
	return all, nil
}

// goBuild is a build in a module, static and stripped; more are flags and packages.
func goBuild(module, cgo, ldflags string, more ...string) step {
	return step{
		Dir:  module,
		Env:  []string{"CGO_ENABLED=" + cgo, "GOFLAGS=-buildvcs=false", "GOWORK=off", "GOTMPDIR=" + outDir},
		Args: append([]string{"go", "build", "-trimpath", "-o", outDir + "/", "-ldflags", "-s -w " + ldflags}, more...),
	}
}

func moduleFiles(module string, more ...string) []string {
	inputs := append([]string{"go.mod", "go.sum"}, more...)
	for i, name := range inputs {
		inputs[i] = filepath.Join(module, name)
	}
	return inputs
}

// kube sets the version, or the nodes would be v0.0.0 and kubectl warn at each call.
func (v versions) kube() artifact {
	version := v["k8s.io/kubernetes"]
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const pkg = "-X k8s.io/component-base/version."
	ldflags := pkg + "gitVersion=" + version + " " + pkg + "gitMajor=" + number[0] + " " + pkg + "gitMinor=" + number[1] + " " + pkg + "gitTreeState=clean"
	a := artifact{
		Name: "kubernetes", Inputs: moduleFiles(hyperkube, "main.go"),
		Steps: []step{goBuild(hyperkube, "0", ldflags, ".")},
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"} {
		a.Steps = append(a.Steps, step{Args: []string{"ln", "-s", "hyperkube", name}})
	}
	return a
}

func (v versions) containerd() artifact {
	const containerd, runc = "github.com/containerd/containerd/v2", "github.com/opencontainers/runc"
	return artifact{
		Name: "containerd", Inputs: moduleFiles(nodetools),
		Steps: []step{
			goBuild(nodetools, "0", "-X "+containerd+"/version.Version="+v[containerd], "-tags", "no_btrfs no_devmapper no_zfs",
				containerd+"/cmd/containerd", containerd+"/cmd/containerd-shim-runc-v2", containerd+"/cmd/ctr"),
			goBuild(nodetools, "1", "-extldflags -static -X main.version="+v[runc], "-tags", "seccomp netgo osusergo", runc),
		},
	}
}

func crictl() artifact {
	return artifact{
		Name: "crictl", Inputs: moduleFiles(nodetools),
		Steps: []step{goBuild(nodetools, "0", "", "sigs.k8s.io/cri-tools/cmd/crictl")},
	}
}

func (v versions) plugins() artifact {
	const plugins = "github.com/containernetworking/plugins"
	args := []string{}
	for _, name := range []string{
		"ipam/dhcp", "ipam/host-local", "ipam/static",
		"main/bridge", "main/dummy", "main/host-device", "main/ipvlan", "main/loopback", "main/macvlan", "main/ptp", "main/tap", "main/vlan",
		"meta/bandwidth", "meta/firewall", "meta/portmap", "meta/sbr", "meta/tuning", "meta/vrf",
	} {
		args = append(args, plugins+"/plugins/"+name)
	}
	return artifact{
		Name: "plugins", Inputs: moduleFiles(nodetools),
		Steps: []step{goBuild(nodetools, "0", "-X "+plugins+"/pkg/utils/buildversion.BuildVersion="+v[plugins], args...)},
	}
}

// unpacked are Debian's packages, fetched and unpacked below debian/, not installed:
// nothing of the machine changes. They are kept until the cache is removed.
func unpacked(names ...string) []step {
	return []step{
		{Args: []string{"apt-get", "update", "-qq"}},
		{Args: append([]string{"apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root"}, names...)},
		{Args: []string{"sh", "-c", "for deb in *.deb; do dpkg -x $deb debian && rm $deb || exit; done"}},
	}
}

func debianRuntime() artifact {
	return artifact{Name: "debian-runtime", Steps: append(unpacked("containerd", "runc"),
		step{Args: []string{"sh", "-c", "mv debian/usr/bin/containerd* debian/usr/bin/ctr debian/usr/sbin/runc . && rm -r debian"}},
	)}
}

func busybox() artifact {
	return artifact{Name: "busybox", Steps: append(unpacked("busybox-static"),
		step{Args: []string{"sh", "-c", "mv debian/bin/busybox . && rm -r debian"}},
	)}
}

// path of the programs, as a machine sees them.
func (t tools) path() string {
	return strings.Join([]string{t.Kube, t.Runtime, t.Crictl, "/opt/cni/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, ":")
}

var errRuntime = errors.New("the runtime is one of containerd, debian")

func (r Runtime) validate() error {
	if !slices.Contains([]Runtime{Containerd, Debian}, r) {
		return fmt.Errorf("runtime %q: %w", r, errRuntime)
	}
	return nil
}
