//go:build e2e

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/multus-thick/multus/api"
)

// A client with exactly the traffic of the dynamic networks controller (contract 1.18): it
// finds the sandbox through the CRI, and asks /delegate on the node's socket.
type controller struct {
	*suite
	client             *api.Client
	sandbox, namespace string // of the pod
	pod                string
}

func (s *suite) controller(node, name string) *controller {
	s.Helper()
	nodeRoot, err := s.machine(node).Root()
	s.Must(err)
	c := &controller{suite: s, pod: name, client: api.NewClient(nodeRoot + "/run/multus")}
	s.Cleanup(c.client.Close)
	c.sandbox = s.on(node, "crictl", "pods", "--namespace", s.ns, "--name", "^"+name+"$", "--state", "ready", "-q")
	var verbose struct {
		Info struct {
			RuntimeSpec struct {
				Linux struct {
					Namespaces []struct{ Type, Path string }
				}
			} `json:"runtimeSpec"`
		}
	}
	s.Must(json.Unmarshal([]byte(s.on(node, "crictl", "inspectp", c.sandbox)), &verbose))
	for _, n := range verbose.Info.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" {
			c.namespace = n.Path
		}
	}
	return c
}

func (c *controller) ask(verb, ifName string, conf object, attributes *api.DelegateInterfaceAttributes) (map[string]any, error) {
	uid := string(c.suite.pod(c.pod).UID)
	answer, err := c.client.CNI(c.Context(), api.PathDelegate, api.Request{
		Config: []byte(text(conf)), InterfaceAttributes: attributes,
		Env: map[string]string{
			"CNI_COMMAND": verb, "CNI_CONTAINERID": c.sandbox, "CNI_NETNS": c.namespace, "CNI_IFNAME": ifName, "CNI_PATH": "/opt/cni/bin",
			"CNI_ARGS": "IgnoreUnknown=true;K8S_POD_NAMESPACE=" + c.ns + ";K8S_POD_NAME=" + c.pod + ";K8S_POD_INFRA_CONTAINER_ID=" + c.sandbox + ";K8S_POD_UID=" + uid,
		},
	})
	if err != nil || answer.Result == nil {
		return nil, err
	}
	var result map[string]any
	return result, json.Unmarshal(answer.Result, &result)
}

// Plug, plug again, unplug; and what stays plugged goes with the pod.
func TestI3_DynamicNetworksController(t *testing.T) {
	s := begin(t)
	t.Cleanup(func() { s.install("thick") })
	s.install("hotplug")
	s.apply(nad("lan", bridged("lan", "10.80.0.0/24")), pod("p", node1, "lan"))
	s.ready("p")
	c := s.controller(node1, "p")
	conf := bridged("hot", "10.81.0.0/24")
	first, err := c.ask("ADD", "hot0", conf, &api.DelegateInterfaceAttributes{MacRequest: "02:00:00:00:81:01"})
	s.Must(err)
	again, err := c.ask("ADD", "hot0", conf, &api.DelegateInterfaceAttributes{MacRequest: "02:00:00:00:81:01"})
	s.Must(err)
	s.Same("the same request again", first, again)
	s.Same("the MAC that was asked for", "02:00:00:00:81:01", s.exec("p", "cat /sys/class/net/hot0/address"))
	_, err = c.ask("ADD", "hot1", bridged("hot1", "10.82.0.0/24"), nil)
	s.Must(err)
	s.Same("interfaces", []string{"eth0", "hot0", "hot1", "net1"}, s.names("p"))
	_, err = c.ask("DEL", "hot1", bridged("hot1", "10.82.0.0/24"), nil)
	s.Must(err)
	s.Same("interfaces", []string{"eth0", "hot0", "net1"}, s.names("p"))
	s.remove(node1, "p") // begin's end sees that hot0's address is back
}

// names are a pod's interfaces.
func (s *suite) names(pod string) []string {
	s.Helper()
	return strings.Fields(s.exec(pod, "ls /sys/class/net | grep -vx lo"))
}
