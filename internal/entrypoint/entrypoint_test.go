package entrypoint

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/multus-thick/multus/internal/confgen"
	"github.com/multus-thick/multus/internal/testkit/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// primary is shaped as the VPC CNI's.
const primary = `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni","mtu":9001},{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`

// pod is the inside of the entrypoint's container, and where it mounts the node's folders.
type pod struct {
	check.T
	dir string
	log *logBuffer
}

// logBuffer is a log's text, which may be read while it grows.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{check.T{T: t}, t.TempDir(), &logBuffer{}}
	for _, dir := range []string{"net.d", "bin", "image", "account"} {
		p.Must(os.Mkdir(p.at(dir), 0o755))
	}
	p.write("image/multus", "the plugin")
	p.write("account/token", "first")
	p.write("account/ca.crt", "CA 1")
	p.write("net.d/10-aws.conflist", primary)
	return p
}

func (p *pod) at(path string) string { return filepath.Join(p.dir, path) }

func (p *pod) write(path, content string) {
	p.Helper()
	p.Must(os.WriteFile(p.at(path), []byte(content), 0o600))
}

// read is a file's content with this pod's folder as DIR; "" for none.
func (p *pod) read(path string) string {
	p.Helper()
	raw, err := os.ReadFile(p.at(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), p.dir, "DIR")
}

// start runs the entrypoint; stop ends it and returns its error.
func (p *pod) start(args ...string) (stop func() error) {
	p.Helper()
	set := pflag.NewFlagSet("thin_entrypoint", pflag.ContinueOnError)
	flags := NewFlags(set)
	p.Must(set.Parse(append([]string{
		"--cni-conf-dir=" + p.at("net.d"), "--multus-autoconfig-dir=" + p.at("net.d"), "--cni-bin-dir=" + p.at("bin"),
		"--multus-bin-file=" + p.at("image/multus"), "--multus-cni-conf-dir=" + p.at("named"),
	}, args...)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cluster := Cluster{Protocol: "https", Host: "10.96.0.1", Port: "443", ServiceAccount: p.at("account")}
	go func() { done <- flags.Run(ctx, cluster, slog.New(slog.NewTextHandler(p.log, nil))) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	p.Cleanup(func() { _ = stop() })
	return stop
}

// until waits for a file.
func (p *pod) until(path string) {
	p.Helper()
	p.Eventually(path+" is there", func() bool { return p.read(path) != "" })
}

// tree lists what is on the node, with modes.
func (p *pod) tree() (list []string) {
	p.Helper()
	for _, top := range []string{"bin", "net.d"} {
		p.Must(filepath.WalkDir(p.at(top), func(path string, e os.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // it is put in place at this moment
			}
			p.Must(err)
			info, err := e.Info()
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && !e.IsDir() {
				list = append(list, info.Mode().String()+" "+strings.TrimPrefix(path, p.dir+"/"))
			}
			return err
		}))
	}
	return list
}

// TestC1_2ConfigurationOfEachFlagSet is the golden output of the flags: those of the
// manifests that people have, and each flag once.
func TestC1_2ConfigurationOfEachFlagSet(t *testing.T) {
	const (
		head = `{"cniVersion":"0.4.0","name":"multus-cni-network","type":"multus",`
		caps = `"capabilities":{"io.kubernetes.cri.pod-annotations":true,"portMappings":true},`
		tail = `"kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig","confDir":"DIR/named"`
	)
	path := primaryAsHere(t)
	all := head + caps + path + tail
	conf := func(text string) map[string]string { return map[string]string{"net.d/00-multus.conf": text} }
	for name, tt := range map[string]struct {
		args []string
		want map[string]string
	}{
		"none": {nil, conf(all + "}")},
		"EKS, v3 thin": {
			[]string{"--multus-conf-file=auto", "--cni-version=0.4.0", "--multus-master-cni-file-name=10-aws.conflist", "--multus-log-level=error", "--multus-log-file=/var/log/aws-routed-eni/multus.log"},
			conf(all + `,"logFile":"/var/log/aws-routed-eni/multus.log","logLevel":"error"}`),
		},
		"upstream, v4 thin": {
			[]string{"--multus-conf-file=auto", "--multus-autoconfig-dir=DIR/net.d", "--cni-conf-dir=DIR/net.d", "--cleanup-config-on-exit=true"},
			conf(all + "}"),
		},
		"isolation": {
			[]string{"--namespace-isolation", "--global-namespaces=default,shared"},
			conf(all + `,"namespaceIsolation":true,"globalNamespaces":"default,shared"}`),
		},
		"policy": {
			[]string{"--isolate-default-network", "--allowed-namespaces=infra", "--allowed-plugins=macvlan, static", "--multus-log-format=json"},
			conf(all + `,"isolateDefaultNetwork":true,"allowedPlugins":["macvlan","static"],"allowedNamespaces":["infra"],"logFormat":"json"}`),
		},
		"quiet":             {[]string{"--multus-log-to-stderr=false"}, conf(all + `,"logToStderr":false}`)},
		"to standard error": {[]string{"--multus-log-to-stderr=true"}, conf(all + "}")},
		"paths of the host": {
			[]string{"--multus-kubeconfig-file-host=/srv/k", "--readiness-indicator-file=/run/ready", "--additional-bin-dir=/srv/bin"},
			conf(head + caps + path + `"kubeconfig":"/srv/k","confDir":"DIR/named","readinessindicatorfile":"/run/ready","binDir":"/srv/bin"}`),
		},
		"the network's name": {
			[]string{"--override-network-name"},
			conf(strings.Replace(all, "multus-cni-network", "aws-cni", 1) + "}"),
		},
		"another version": { // converted, where v4 refused
			[]string{"--cni-version=0.3.1"}, conf(strings.Replace(all, "0.4.0", "0.3.1", 1) + "}"),
		},
		"a forced version": {
			[]string{"--cni-version=0.3.1", "--force-cni-version"},
			conf(strings.Replace(head, "0.4.0", "0.3.1", 1) + caps + `"delegates":[` + strings.Replace(primary, "0.4.0", "0.3.1", 1) + `],` + tail + "}"),
		},
		"renamed": {
			[]string{"--rename-conf-file"},
			map[string]string{"net.d/00-multus.conf": head + caps + `"delegates":[` + primary + `],` + tail + "}", "net.d/10-aws.conflist.old": primary},
		},
		"CNI 1.0": {
			[]string{"--cni-version=1.0.0"},
			map[string]string{"net.d/00-multus.conflist": `{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{"type":"multus",` + caps + path + tail + "}]}"},
		},
		"accepted from v3": {[]string{"--restart-crio=false", "--skip-tls-verify=false"}, conf(all + "}")},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			for i := range tt.args {
				tt.args[i] = strings.ReplaceAll(tt.args[i], "DIR", p.dir)
			}
			stop := p.start(tt.args...)
			got := map[string]string{}
			for file := range tt.want {
				p.until(file)
				got[file] = strings.TrimSuffix(p.read(file), "\n")
			}
			p.Same("files", tt.want, got)
			p.Must(stop())
		})
	}
}

// primaryAsHere is how the configuration names the primary network where this test runs:
// in a container a temporary folder has no certain path on the host.
func primaryAsHere(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if _, certain := confgen.HostPaths(string(mounts), t.TempDir(), ""); !certain {
		return `"delegates":[` + primary + `],`
	}
	return `"clusterNetwork":"DIR/net.d/10-aws.conflist",`
}

const kubeconfigWant = `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Q0EgMQ==
    server: https://10.96.0.1:443
  name: local
contexts:
- context:
    cluster: local
    user: multus
  name: multus-context
current-context: multus-context
kind: Config
users:
- name: multus
  user:
    token: first
`

// TestC1_2LifeOfANode: installed, followed, and left as it was asked for.
func TestC1_2LifeOfANode(t *testing.T) {
	const installed, access, conf = "-rwxr-xr-x bin/multus", "-rw------- net.d/multus.d/multus.kubeconfig", "-rw------- net.d/00-multus.conf"
	const main = "-rw------- net.d/10-aws.conflist"
	for name, tt := range map[string]struct {
		args   []string
		during []string
		after  []string
	}{
		"kept":    {nil, []string{installed, conf, main, access}, []string{installed, conf, main, access}},
		"cleaned": {[]string{"--cleanup-config-on-exit"}, []string{installed, conf, main, access}, []string{installed, main, access}},
		"renamed and cleaned": {
			[]string{"--cleanup-config-on-exit", "--rename-conf-file"},
			[]string{installed, conf, main + ".old", access},
			[]string{installed, main, access},
		},
		"no plugin": {[]string{"--skip-multus-binary-copy", "--multus-bin-file=/nowhere", "--cni-bin-dir=/nowhere"}, []string{conf, main, access}, []string{conf, main, access}},
		"once":      {[]string{"--skip-config-watch"}, []string{installed, conf, main, access}, []string{installed, conf, main, access}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			stop := p.start(tt.args...)
			p.Eventually("all is in place", func() bool { return cmp.Diff(tt.during, p.tree()) == "" })
			p.Same("the kubeconfig", kubeconfigWant, p.read("net.d/multus.d/multus.kubeconfig"))
			p.Must(stop())
			p.Same("left behind", tt.after, p.tree())
			if info, err := os.Stat(p.at("named")); err != nil || !info.IsDir() {
				t.Errorf("--multus-cni-conf-dir is not made: %v", err)
			}
		})
	}
}

// TestC1_2CopiedFile: --multus-conf-file names a file, as installations of v3 have.
func TestC1_2CopiedFile(t *testing.T) {
	p := newPod(t)
	const theirs = `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig","delegates":[{"type":"bridge","name":"b"}]}`
	p.write("70-multus.conf", theirs)
	stop := p.start("--multus-conf-file="+p.at("70-multus.conf"), "--cleanup-config-on-exit")
	p.until("net.d/70-multus.conf")
	p.Same("the copy", theirs, p.read("net.d/70-multus.conf"))
	p.Must(stop())
	folder, err := os.Stat(p.at("net.d/multus.d"))
	p.Must(err)
	p.Same("the kubeconfig's folder", "drwx------", folder.Mode().String())
	p.Same("left behind", []string{"-rwxr-xr-x bin/multus", "-rw------- net.d/10-aws.conflist", "-rw------- net.d/multus.d/multus.kubeconfig"}, p.tree())
}

// TestI4_FlagsBesideACopiedFile: those that have no effect there are told of.
func TestI4_FlagsBesideACopiedFile(t *testing.T) {
	p := newPod(t)
	p.write("70-multus.conf", `{"cniVersion":"0.3.1","name":"m","type":"multus","delegates":[{"type":"bridge","name":"b"}]}`)
	stop := p.start("--multus-conf-file="+p.at("70-multus.conf"), "--cleanup-config-on-exit", "--allowed-plugins=bridge", "--namespace-isolation")
	p.until("net.d/70-multus.conf")
	p.Must(stop())
	for _, want := range []string{
		`flag --allowed-plugins has no effect, because --multus-conf-file names a file: set the key \"allowedPlugins\" there`,
		`flag --namespace-isolation has no effect, because --multus-conf-file names a file: set the key \"namespaceIsolation\" there`,
	} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, p.log.String())
		}
	}
}

// TestC1_2CredentialsFollow: a token lives for an hour, a CA for years, and a kubeconfig
// may be damaged or opened to others.
func TestC1_2CredentialsFollow(t *testing.T) {
	const file = "net.d/multus.d/multus.kubeconfig"
	p := newPod(t)
	p.start("--skip-config-watch") // which concerns the configuration alone
	holds := func(want string) {
		t.Helper()
		p.Eventually("the kubeconfig is\n"+want, func() bool {
			info, err := os.Stat(p.at(file))
			return err == nil && info.Mode() == 0o600 && p.read(file) == want
		})
	}
	holds(kubeconfigWant)
	p.write("account/token", "second\n")
	second := strings.Replace(kubeconfigWant, "first", "second", 1)
	holds(second)
	p.write("account/ca.crt", "CA 2")
	second = strings.Replace(second, "Q0EgMQ==", "Q0EgMg==", 1)
	holds(second)
	p.write(file, "")
	holds(second)
	p.Must(os.Chmod(p.at(file), 0o644))
	holds(second)
}

// TestC1_2CredentialsThroughAGap: in the middle of a rotation the old ones stay, and it
// is told once.
func TestC1_2CredentialsThroughAGap(t *testing.T) {
	p := newPod(t)
	synctest.Test(t, func(t *testing.T) {
		k := &kubeconfig{
			cluster: Cluster{Protocol: "https", Host: "10.96.0.1", Port: "443", ServiceAccount: p.at("account")},
			path:    p.at("k"), log: slog.New(slog.NewTextHandler(p.log, nil)),
		}
		go k.file().Keep(t.Context())
		after := func(token, want string, told int) {
			t.Helper()
			p.write("account/token", token)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			p.Same("the kubeconfig", want, p.read("k"))
			if n := strings.Count(p.log.String(), "account/token is empty"); n != told {
				t.Errorf("told %d times, want %d:\n%s", n, told, p.log)
			}
		}
		after("first", kubeconfigWant, 0)
		after("", kubeconfigWant, 1)
		after("second", strings.Replace(kubeconfigWant, "first", "second", 1), 1)
		after("", strings.Replace(kubeconfigWant, "first", "second", 1), 2)
	})
}

func TestC1_2KubeconfigWithoutVerification(t *testing.T) {
	p := newPod(t)
	p.Must(os.Remove(p.at("account/ca.crt")))
	p.start("--skip-tls-verify")
	p.until("net.d/multus.d/multus.kubeconfig")
	p.Same("the kubeconfig", strings.Replace(kubeconfigWant, "certificate-authority-data: Q0EgMQ==\n    server: https://10.96.0.1:443",
		"insecure-skip-tls-verify: true\n    server: https://10.96.0.1:443", 1), p.read("net.d/multus.d/multus.kubeconfig"))
}

func TestC1_10AddressOfTheAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		cluster Cluster
		want    string
	}{
		"IPv6":     {Cluster{"https", "fd00::1", "443", ""}, "https://[fd00::1]:443"},
		"brackets": {Cluster{"https", "[fd00::1]", "443", ""}, "https://[fd00::1]:443"},
		"a name":   {Cluster{"http", "api.example", "8080", ""}, "http://api.example:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c.cluster.ServiceAccount = p.at("account")
			k := &kubeconfig{cluster: c.cluster, path: p.at("k"), log: slog.New(slog.DiscardHandler)}
			p.Must(k.file().Write())
			if server := regexp.MustCompile(`server: (\S+)`).FindStringSubmatch(p.read("k")); server == nil || server[1] != c.want {
				t.Errorf("server %q, want %s", server, c.want)
			}
		})
	}
}

// TestC1_2NoServiceAccount: somebody else sees to the plugin's kubeconfig.
func TestC1_2NoServiceAccount(t *testing.T) {
	p := newPod(t)
	p.Must(os.RemoveAll(p.at("account")))
	stop := p.start()
	p.until("net.d/00-multus.conf")
	p.Must(stop())
	p.Same("files", []string{"-rwxr-xr-x bin/multus", "-rw------- net.d/00-multus.conf", "-rw------- net.d/10-aws.conflist"}, p.tree())
	if !strings.Contains(p.log.String(), `level=WARN msg="the pod has no service account, so no kubeconfig is written for the plugin"`) {
		t.Errorf("log:\n%s", p.log)
	}
}

// TestC1_20MistakesAreErrors: v4 told them and ended with 0.
func TestC1_20MistakesAreErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no folder of configurations": {[]string{"--cni-conf-dir=DIR/none"}, "--cni-conf-dir: mount the node's folder there: stat DIR/none: no such file or directory"},
		"no folder of plugins":        {[]string{"--cni-bin-dir=DIR/none"}, "--cni-bin-dir: mount the node's folder there: stat DIR/none: no such file or directory"},
		"a file for a folder":         {[]string{"--cni-bin-dir=DIR/image/multus"}, "--cni-bin-dir: DIR/image/multus is not a folder"},
		"no plugin":                   {[]string{"--multus-bin-file=DIR/none"}, "--multus-bin-file, --cni-bin-dir: nothing to install: stat DIR/none: no such file or directory"},
		"no file to copy":             {[]string{"--multus-conf-file=DIR/none"}, `--multus-conf-file: multusConfigFile is "DIR/none": want "auto" or a CNI configuration file: stat DIR/none: no such file or directory`},
		"a path for a name":           {[]string{"--multus-master-cni-file-name=/etc/10-aws.conflist"}, `key "multusMasterCNI": expected a file name without a path, found the text "/etc/10-aws.conflist"`},
		"a policy without names":      {[]string{"--allowed-plugins="}, `key "allowedPlugins": expected a list of names that is not empty, found a list`},
		"no version to force":         {[]string{"--force-cni-version"}, `key "cniVersion": expected a value, because "forceCNIVersion" is true, found none`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			for i := range tt.args {
				tt.args[i] = strings.ReplaceAll(tt.args[i], "DIR", p.dir)
			}
			err := p.start(tt.args...)()
			if err == nil || strings.ReplaceAll(err.Error(), p.dir, "DIR") != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if left := p.read("net.d/00-multus.conf"); left != "" {
				t.Errorf("a configuration was written: %s", left)
			}
		})
	}
}

func TestC1_20APIServerUnknown(t *testing.T) {
	p := newPod(t)
	for name, cluster := range map[string]Cluster{"no host": {Port: "443"}, "no port": {Host: "10.96.0.1"}} {
		cluster.ServiceAccount = p.at("account")
		k := &kubeconfig{cluster: cluster}
		err := k.file().Write()
		const want = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: the plugin's kubeconfig needs the API server's address"
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// TestC1_20ConfDirIsTheHosts: v4 wrote the pod's path, under a key that nobody read.
func TestC1_20ConfDirIsTheHosts(t *testing.T) {
	for flag, want := range map[string]string{
		"/host/etc/cni/multus/net.d": "/etc/cni/multus/net.d",
		"/host/srv/named":            "/srv/named",
		"/srv/named":                 "/srv/named",
		"/hosted":                    "/hosted",
	} {
		if got := onHost(flag); got != want {
			t.Errorf("%s is %s on the host, want %s", flag, got, want)
		}
	}
}
