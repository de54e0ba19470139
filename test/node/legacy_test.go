package node_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/netspec"
)

// post sends a request as an older client does.
func (n *node) post(path, verb string, p *pod, ifName string, conf object, attributes *api.DelegateInterfaceAttributes) (result object, err error) {
	client := api.NewClient(n.path("run"))
	defer client.Close()
	answer, err := client.CNI(n.Context(), path, api.Request{Config: []byte(text(conf)), InterfaceAttributes: attributes, Env: map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": p.ContainerID, "CNI_NETNS": p.NetNS, "CNI_IFNAME": ifName, "CNI_PATH": pluginDir,
		"CNI_ARGS": fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s;X=ab", p.Namespace, p.Name, p.ContainerID, p.UID),
		"PATH":     "/usr/bin", "HOME": "/root",
	}})
	if err == nil && answer.Result != nil {
		err = json.Unmarshal(answer.Result, &result)
	}
	return result, err
}

// Multus v4's shim lets the daemon run the plugins.
func TestC1_8RequestsOfAnOldShim(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/"}})
	n.nad("fake", n.fake("fake", nil))
	p := threeNetworks(n)
	p.Annotations = selecting("lan,fake")
	n.api.PutPod(n.apiPod(p))
	conf := decoded(t, []byte(n.read("conf/00-multus.conf")))

	result, err := n.post(api.PathCNI, "ADD", p, "eth0", conf, nil)
	n.Must(err)
	n.Same("the result's version", any("1.1.0"), result["cniVersion"])
	n.Same("interfaces", []string{"lo", "eth0", "net1"}, n.podLinks(p))
	n.Same("network-status", []netspec.StatusEntry{
		{Name: "primary", Interface: "eth0", IPs: []string{"10.1.0.2"}, MAC: "mac", Default: true, Gateway: []string{"10.1.0.1"}},
		{Name: "default/lan", Interface: "net1", IPs: []string{"10.20.0.50"}, MAC: "mac"},
		{Name: "default/fake", Interface: "net2"},
	}, n.status(p))
	n.Same("CNI_ARGS keep what the runtime added", true, strings.HasSuffix(n.calls()[0].Args, ";X=ab"))
	for _, verb := range []string{"CHECK", "STATUS"} {
		_, err = n.post(api.PathCNI, verb, p, "eth0", conf, nil)
		n.Must(err)
	}
	result, err = n.post(api.PathCNI, "DEL", p, "eth0", conf, nil)
	n.Must(err)
	n.Same("the result of DEL", object(nil), result)
	n.Same("interfaces", []string{"lo"}, n.podLinks(p))
	n.clean()
}

// A pod that our plugin attached, and one network more.
func TestC1_8DelegateIsGivenBackWithThePod(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/"}})
	p := n.pod("p", nil)
	n.attach(p)
	args := map[string]any{"k": "v"}
	conf := object{"cniVersion": "1.0.0", "name": "hot", "plugins": []any{
		object{"type": "bridge", "bridge": "br4", "ipam": n.hostLocal(4), "capabilities": object{"mac": true}},
		object{"type": "fake", "fake": n.script(nil)},
	}}
	attributes := &api.DelegateInterfaceAttributes{MacRequest: "02:00:00:00:04:04", CNIArgs: &args}

	first, err := n.post(api.PathDelegate, "ADD", p, "hot0", conf, attributes)
	n.Must(err)
	n.Same("the MAC asked for", "02:00:00:00:04:04", n.facts(p, "hot0").MAC)
	n.Same("cni-args", any(object{"cni": object{"k": "v"}}), n.stdins("ADD")[0]["args"])
	again, err := n.post(api.PathDelegate, "ADD", p, "hot0", conf, attributes)
	n.Must(err)
	n.Same("the answer to the same request again", first, again)
	// What is recorded is compared; the plugins are asked with checkDelegates alone (rule 18).
	_, err = n.post(api.PathDelegate, "CHECK", p, "hot0", conf, attributes)
	n.Must(err)

	other := n.fake("hot-too", nil)
	_, err = n.post(api.PathDelegate, "ADD", p, "hot1", other, nil)
	n.Must(err)
	n.Same("the delegate's configuration, without the daemon's keys", decoded(t, []byte(text(other))), n.stdins("ADD")[1])
	_, err = n.post(api.PathDelegate, "DEL", p, "hot1", other, nil)
	n.Must(err)
	n.Same("interfaces", []string{"lo", "eth0", "hot0"}, n.podLinks(p))
	n.detach(p)
	n.Same("interfaces", []string{"lo"}, n.podLinks(p))
	n.Same("calls", []string{"ADD hot", "ADD hot-too", "DEL hot-too", "DEL hot"}, n.began())
	n.clean()
}

// The daemon is killed while it attaches: the pod's DEL waits for what still runs, and
// gives it back.
func TestR2DelegateCutOff(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/"}})
	p := n.pod("p", nil)
	n.attach(p)
	cut := make(chan error, 1)
	go func() {
		_, err := n.post(api.PathDelegate, "ADD", p, "hot0", n.fake("hot", object{"ADD": object{"waitFor": n.path("open")}}), nil)
		cut <- err
	}()
	n.awaitCall("ADD hot")
	n.stopDaemon(syscall.SIGKILL)
	if err := <-cut; err == nil {
		t.Error("the request succeeded though its daemon was killed")
	}
	d := n.begin("DEL", p)
	n.write("open", "")
	n.Must(<-d.done)
	n.Same("calls", []string{"ADD hot", "DEL hot"}, n.began())
	n.Same("calls that ran at once", []string(nil), overlaps(n.calls()))
	n.clean()
}

func TestC1_8NoExecutorSaysSo(t *testing.T) {
	n := newNode(t, setup{})
	p := n.pod("p", nil)
	for _, path := range []string{api.PathCNI, api.PathDelegate} {
		_, err := n.post(path, "ADD", p, "eth0", n.fake("x", nil), nil)
		n.fails(err, types.ErrInternal, "chrootDir")
	}
	n.clean()
}

// A pod that Multus v4 attached, and that our plugin deletes.
func TestR9PodOfMultusV4(t *testing.T) {
	tests := map[string]func(*node, *pod){
		"all files":    func(*node, *pod) {},
		"scratch only": func(n *node, _ *pod) { n.Must(os.RemoveAll(n.path("state/results"))) },
		"cache only":   func(n *node, p *pod) { n.Must(os.Remove(n.path("state/" + p.ContainerID))) },
	}
	for name, lose := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setup{})
			p := n.pod("p", selecting("lan,net-b"))
			n.attachAsV4(p, "eth0", n.bridged("primary", 1))
			n.attachAsV4(p, "lan0", object{"cniVersion": "0.3.1", "name": "lan", "type": "macvlan", "master": "eth1", "ipam": n.hostLocal(20)})
			n.attachAsV4(p, "net2", n.bridged("net-b", 2))
			n.Same("leases", 3, len(n.leases()))
			lose(n, p)
			n.detach(p)
			n.Same("interfaces", []string{"lo"}, n.podLinks(p))
			n.clean()
		})
	}
}

// attachAsV4 attaches a network and leaves the files that v4 leaves, in the form of
// samples/v4-state: libcni's cache, and one more element in the scratch file.
func (n *node) attachAsV4(p *pod, ifName string, conf object) {
	n.Helper()
	rc := &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.NetNS, IfName: ifName, CacheDir: n.path("state"), Args: [][2]string{
		{"IgnoreUnknown", "true"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name}, {"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID}, {"K8S_POD_UID", p.UID},
	}}
	cni := libcni.NewCNIConfigWithCacheDir([]string{pluginDir}, n.path("state"), &call{node: n})
	element := object{"Name": conf["name"], "IsFilterV4Gateway": false, "IsFilterV6Gateway": false, "Bytes": []byte(text(conf)), "Conf": object{"ipam": object{}}, "ConfList": object{}}
	var list *libcni.NetworkConfigList
	var err error
	if conf["plugins"] != nil {
		list, err = libcni.ConfListFromBytes([]byte(text(conf)))
		element["ConfList"] = object{"cniVersion": conf["cniVersion"], "name": conf["name"], "plugins": []any{object{"type": "bridge", "ipam": object{"type": "host-local"}}}}
	} else {
		var one *libcni.PluginConfig
		one, err = libcni.ConfFromBytes([]byte(text(conf))) //nolint:staticcheck // v4 does so
		n.Must(err)
		list, err = libcni.ConfListFromConf(one) //nolint:staticcheck // likewise
		element["Conf"] = object{"cniVersion": conf["cniVersion"], "name": conf["name"], "type": conf["type"], "ipam": object{"type": "host-local"}}
	}
	n.Must(err)
	_, err = cni.AddNetworkList(n.Context(), list, rc)
	n.Must(err)
	if ifName == "lan0" {
		element["ifnameRequest"] = ifName
	}
	var elements []object
	scratch := n.path("state/" + p.ContainerID)
	if raw, err := os.ReadFile(scratch); err == nil {
		n.Must(json.Unmarshal(raw, &elements))
	}
	n.Must(os.WriteFile(scratch, []byte(text(append(elements, element))), 0o600))
}

// raw posts as any HTTP client does, with the URL's host that v4's has.
func (n *node) raw(path, body string) (status int, answer string) {
	n.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.path("run/multus.sock"))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://dummy"+path, strings.NewReader(body))
	n.Must(err)
	response, err := client.Do(req)
	n.Must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	n.Must(err)
	return response.StatusCode, strings.TrimSpace(string(text))
}

// What goes over the wire to and from a client of v4 (contract 1.8).
func TestC1_8Wire(t *testing.T) {
	n := newNode(t, setup{settings: object{"chrootDir": "/"}})
	n.nad("failing", n.fake("failing", object{"ADD": object{"error": object{"code": 101, "msg": "no room"}}}))
	conf := base64.StdEncoding.EncodeToString([]byte(n.read("conf/00-multus.conf")))
	failing := base64.StdEncoding.EncodeToString([]byte(text(n.fake("hot", object{"DEL": object{"error": object{"code": 102, "msg": "not now"}}}))))
	stale, p, bad := n.pod("stale", nil), n.pod("p", nil), n.pod("bad", selecting("failing"))
	n.attach(stale)
	n.age(stale)
	n.forgetInRuntime(stale)
	request := func(verb string, p *pod, config string) string {
		env := object{"CNI_COMMAND": verb, "CNI_PATH": pluginDir}
		if p != nil {
			env["CNI_CONTAINERID"], env["CNI_NETNS"], env["CNI_IFNAME"] = p.ContainerID, p.NetNS, "eth0"
			env["CNI_ARGS"] = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.Name + ";K8S_POD_INFRA_CONTAINER_ID=" + p.ContainerID
		}
		return text(object{"env": env, "config": config})
	}
	hot := strings.Replace(request("ADD", p, failing), "eth0", "hot0", 1)
	gc := decoded(t, []byte(n.read("conf/00-multus.conf")))
	gc["cni.dev/valid-attachments"] = []any{object{"containerID": p.ContainerID, "ifname": "eth0"}}
	for _, step := range []struct {
		path, body string
		status     int
		answer     string // a part of it
	}{
		{"/cni", request("ADD", p, conf), 200, `{"Result":{`},
		{"/cni", request("ADD", bad, conf), 400, `{"code":101,"msg":"pod default/bad: network default/failing`},
		{"/cni", request("ADD", nil, conf), 400, `"msg":"`},
		{"/cni", request("", p, conf), 400, `CNI_COMMAND is \"\": want ADD, DEL, CHECK, GC or STATUS`},
		{"/cni", `{"env":{`, 400, `"code":6`},
		{"/cni", request("CHECK", p, conf), 200, `{"Result":null}`},
		{"/cni", request("STATUS", nil, conf), 200, `{"Result":null}`},
		{"/delegate", hot, 200, `{"Result":{`},
		{"/delegate", strings.Replace(hot, "ADD", "DEL", 1), 400, `"code":102`},
		{"/cni", request("GC", nil, base64.StdEncoding.EncodeToString([]byte(text(gc)))), 200, `{"Result":null}`},
		{"/cni", request("DEL", stale, conf), 200, `{"Result":null}`},
	} {
		status, answer := n.raw(step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.answer) {
			t.Errorf("%s with %.200s: %d %s, want %d with %s", step.path, step.body, status, answer, step.status, step.answer)
		}
	}
	n.Same("leases after GC", []string{"10.1.0.3"}, n.leases())
}
