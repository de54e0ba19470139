package daemon

import "testing"

// TestC1_8HostsPathsStayOut: what the generated configuration says of the host's
// folders has no meaning in the daemon's.
func TestC1_8HostsPathsStayOut(t *testing.T) {
	got, err := here([]byte(`{"name":"m","clusterNetwork":"/host/etc/cni/net.d/10-a.conf","host":{"primaryFile":"/etc/cni/net.d/10-a.conf"}}`))
	if want := `{"name":"m","clusterNetwork":"/host/etc/cni/net.d/10-a.conf"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}
