package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
)

// call is one call of the container runtime, through libcni.
type call struct {
	invoke.DefaultExec
	*node
	// started gets the plugin's process; nil where nobody wants it.
	started chan *os.Process
	// deaf is a runtime that does not live to read the result.
	deaf bool
}

// ExecPlugin runs a plugin in the node's namespace, with the environment that a
// runtime started by systemd has. What the plugin says on stderr goes to plugin.log.
func (c *call) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "INVOCATION_ID=0123"}
	for _, v := range environ {
		if strings.HasPrefix(v, "CNI_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	log, err := os.OpenFile(c.path("plugin.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, log
	if c.deaf {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer w.Close()
		if err := r.Close(); err != nil {
			return nil, err
		}
		cmd.Stdout = w
	}
	if err := netns.Do(c.ns, cmd.Start); err != nil {
		return nil, err
	}
	if c.started != nil {
		c.started <- cmd.Process
	}
	if err := cmd.Wait(); err != nil {
		var said types.Error
		if json.Unmarshal(stdout.Bytes(), &said) == nil && said.Msg != "" {
			return nil, &said
		}
		return nil, fmt.Errorf("%w, and it printed %q", err, &stdout)
	}
	return stdout.Bytes(), nil
}

// FindInPath is invoke.Exec's.
func (c *call) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// load reads the node's configuration, as a runtime does that sees the file change.
func (c *call) load() (*libcni.CNIConfig, *libcni.NetworkConfigList, error) {
	one, err := libcni.ConfFromFile(c.path("conf/00-multus.conf")) //nolint:staticcheck // what go-cni does with a .conf
	if err != nil {
		return nil, nil, err
	}
	list, err := libcni.ConfListFromConf(one) //nolint:staticcheck // likewise
	return libcni.NewCNIConfigWithCacheDir([]string{c.bin, pluginDir}, c.path("runtime"), c), list, err
}

// arguments are what containerd passes for a pod. The order of CNI_ARGS is random there too.
func (p *pod) arguments() *libcni.RuntimeConf {
	rc := &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.NetNS, IfName: "eth0", CapabilityArgs: map[string]any{
		"dns":        map[string][]string{"Servers": {"10.96.0.10"}, "Searches": {"cluster.local"}, "Options": {"ndots:5"}},
		"cgroupPath": "/kubepods/pod" + p.UID,
	}}
	args := map[string]string{"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": p.Namespace, "K8S_POD_NAME": p.Name, "K8S_POD_INFRA_CONTAINER_ID": p.ContainerID}
	if p.UID != "" {
		args["K8S_POD_UID"] = p.UID
	}
	for key, value := range args {
		rc.Args = append(rc.Args, [2]string{key, value})
	}
	rc.Args = append(rc.Args, p.args...)
	if !p.old {
		delivered := map[string]string{netspec.AnnotationConfigSource: "api", "kubernetes.io/config.seen": "2026-08-01T00:00:00Z"}
		for key, value := range p.Annotations {
			delivered[key] = value
		}
		rc.CapabilityArgs[config.PodAnnotationsCapability] = delivered
	}
	return rc
}

func (c *call) add(p *pod) (*types100.Result, error) {
	cni, list, err := c.load()
	if err != nil {
		return nil, err
	}
	result, err := cni.AddNetworkList(c.Context(), list, p.arguments())
	if err != nil {
		return nil, err
	}
	return types100.GetResult(result)
}

// del runs also when the test is over, in a clean-up.
func (c *call) del(p *pod) error {
	cni, list, err := c.load()
	if err != nil {
		return err
	}
	return cni.DelNetworkList(context.WithoutCancel(c.Context()), list, p.arguments())
}

func (n *node) add(p *pod) (*types100.Result, error) { return (&call{node: n}).add(p) }
func (n *node) del(p *pod) error                     { return (&call{node: n}).del(p) }

// attach is an ADD that must succeed, and returns the addresses of the result.
func (n *node) attach(p *pod) (addresses []string) {
	n.Helper()
	result, err := n.add(p)
	n.Must(err)
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.String())
	}
	return addresses
}

// detach is a DEL that must succeed.
func (n *node) detach(p *pod) {
	n.Helper()
	n.Must(n.del(p))
}

func (n *node) check(p *pod) error {
	cni, list, err := (&call{node: n}).load()
	if err != nil {
		return err
	}
	return cni.CheckNetworkList(n.Context(), list, p.arguments())
}

func (n *node) cniStatus() error {
	cni, list, err := (&call{node: n}).load()
	if err != nil {
		return err
	}
	return cni.GetStatusNetworkList(n.Context(), list)
}

// gc is a GC in which these pods are valid.
func (n *node) gc(valid ...*pod) error {
	cni, list, err := (&call{node: n}).load()
	if err != nil {
		return err
	}
	args := &libcni.GCArgs{}
	for _, p := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.ContainerID, IfName: "eth0"})
	}
	return cni.GCNetworkList(n.Context(), list, args)
}

// forgetInRuntime removes what libcni has cached of a pod: else its GC begins with a
// DEL of its own.
func (n *node) forgetInRuntime(p *pod) {
	n.Helper()
	n.Must(os.Remove(n.path("runtime/results/" + config.DefaultNetworkName + "-" + p.ContainerID + "-eth0")))
}

// running is a call that has not been waited for.
type running struct {
	*node
	process *os.Process // of the plugin
	done    chan error
}

// begin starts an ADD or a DEL.
func (n *node) begin(verb string, p *pod) *running {
	n.Helper()
	c := &call{node: n, started: make(chan *os.Process, 1)}
	r := &running{node: n, done: make(chan error, 1)}
	go func() {
		var err error
		if verb == "ADD" {
			_, err = c.add(p)
		} else {
			err = c.del(p)
		}
		r.done <- err
	}()
	select {
	case r.process = <-c.started:
	case err := <-r.done:
		n.Fatalf("%s did not start: %v", verb, err)
	}
	n.Cleanup(func() { _ = r.process.Kill() }) // if it still runs
	return r
}

// kill ends the plugin as a runtime does whose time is up: the plugin alone.
func (r *running) kill() {
	r.Helper()
	if err := r.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.Fatal(err)
	}
	<-r.done
}

// code is the CNI code of an error of a plugin; 0 where it is none.
func code(err error) uint {
	var cni *types.Error
	if !errors.As(err, &cni) {
		return 0
	}
	return cni.Code
}

// fails demands an error with a CNI code whose text is one line with these parts.
func (n *node) fails(err error, want uint, parts ...string) {
	n.Helper()
	if err == nil || code(err) != want || strings.Contains(err.Error(), "\n") {
		n.Errorf("got %T %d %v, want one line with code %d", err, code(err), err, want)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			n.Errorf("the error lacks %q: %v", part, err)
		}
	}
}

// line is a line of the fake plugin's log.
type line struct {
	End       bool
	PID       int
	Network   string
	Command   string
	Container string
	IfName    string
	NetNS     string
	Args      string
	Path      string
	Stdin     json.RawMessage
}

// calls are the lines of the fake plugin's log, in the order in which they were written.
func (n *node) calls() (all []line) {
	n.Helper()
	for text := range strings.Lines(n.read("log")) {
		var l line
		n.Must(json.Unmarshal([]byte(text), &l))
		all = append(all, l)
	}
	return all
}

// began are the calls of the fake plugin, as "VERB network", in the order of their beginnings.
func (n *node) began() (all []string) {
	n.Helper()
	for _, l := range n.calls() {
		if !l.End {
			all = append(all, l.Command+" "+l.Network)
		}
	}
	return all
}

// awaitCall waits until the fake plugin was called so.
func (n *node) awaitCall(what string) {
	n.Helper()
	n.eventually(func() error {
		all := n.began()
		for _, c := range all {
			if c == what {
				return nil
			}
		}
		return fmt.Errorf("no call %q in %q", what, all)
	})
}

// forget empties the fake plugin's log.
func (n *node) forget() {
	n.Helper()
	n.Must(os.Truncate(n.path("log"), 0))
}

// quick is a primary network that makes nothing, for tests with many pods.
func quick(n *node) object {
	return object{"cniVersion": "1.0.0", "name": "primary", "plugins": []any{
		object{"type": "fake", "fake": n.script(object{"ADD": object{"result": answer("10.1.0.2/24")}})},
	}}
}

// answer is a CNI result with an address.
func answer(address string) object {
	return object{"cniVersion": "1.0.0", "interfaces": []any{object{"name": "eth0", "sandbox": "/netns"}}, "ips": []any{object{"address": address, "interface": 0}}}
}
