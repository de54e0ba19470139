package daemon

import (
	"fmt"
	"strings"
	"testing"
)

// TestC1_8HostsPathsStayOut: what the generated configuration says of the host's
// folders has no meaning in the daemon's.
func TestC1_8HostsPathsStayOut(t *testing.T) {
	got, err := here([]byte(`{"name":"m","clusterNetwork":"/host/etc/cni/net.d/10-a.conf","host":{"primaryFile":"/etc/cni/net.d/10-a.conf"}}`))
	if want := `{"name":"m","clusterNetwork":"/host/etc/cni/net.d/10-a.conf"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestI4_DelegateUnderTheStandingRules: the rules of a configuration that an administrator
// wrote hold for /delegate too.
func TestI4_DelegateUnderTheStandingRules(t *testing.T) {
	r := prepare(t, map[string]any{"chrootDir": "/"})
	r.write("fixed.conf", `{"cniVersion":"1.0.0","name":"m","type":"multus-shim","allowedPlugins":["macvlan"]}`)
	r.d.Config.MultusConfigFile = r.path("fixed.conf")
	asks := func(plugin string) string {
		env := map[string]string{"CNI_CONTAINERID": "c1", "CNI_NETNS": "/n", "CNI_IFNAME": "x1", "CNI_ARGS": "K8S_POD_NAMESPACE=app;K8S_POD_NAME=web;K8S_POD_UID=u"}
		_, _, err := r.d.delegated(invocation(env, []byte(`{"cniVersion":"1.0.0","name":"n","type":"`+plugin+`"}`)), nil)
		return fmt.Sprint(err)
	}
	r.Same("one that is listed", "<nil>", asks("macvlan"))
	if got := asks("host-device"); !strings.Contains(got, "the node's key allowedPlugins does not list \"host-device\"") {
		t.Errorf("one that is not: %s", got)
	}
}
