package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// writer is a log that is read while it is written.
type writer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestI4_NoSecretsInTheLog of a daemon that logs all it can, over whatever goes well and
// wrong: its kubeconfig has a token, its own and the networks' configurations have passwords.
func TestI4_NoSecretsInTheLog(t *testing.T) {
	const secret = "s3cret"
	c, dir := check.T{T: t}, t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	server, err := apiserver.StartTLS("127.0.0.1")
	c.Must(err)
	t.Cleanup(server.Close)
	server.RequireToken(secret + "-token")
	kubeconfig, err := server.Kubeconfig(dir)
	c.Must(err)
	text, err := os.ReadFile(kubeconfig)
	c.Must(err)
	inline := strings.Replace(string(text), `"tokenFile": "`+at("token")+`"`, `"token": "s3cret-token"`, 1)
	c.Same("the kubeconfig holds the token", true, strings.Contains(inline, secret))
	c.Must(os.WriteFile(kubeconfig, []byte(inline), 0o600))
	c.Must(os.Mkdir(at("net.d"), 0o755))
	c.Must(os.WriteFile(at("net.d/10-main.conf"), []byte(`{"cniVersion":"1.0.0","name":"main","type":"bridge","token":"s3cret-primary"}`), 0o644))
	c.Must(os.WriteFile(at("net.d/05-broken.conf"), []byte(`{"cniVersion":"1.0.0","token":"s3cret-broken"`), 0o644))
	network := func(name, config string) {
		server.PutNAD(metav1.ObjectMeta{Namespace: "app", Name: name}, config)
	}
	network("lan", `{"cniVersion":"1.0.0","name":"lan","type":"bridge","password":"s3cret-nad"}`)
	network("broken", `{"cniVersion":"1.0.0","password":"s3cret-cut`)
	network("self", `{"cniVersion":"1.0.0","type":"multus","password":"s3cret-self"}`)
	network("other", `{"cniVersion":"1.0.0","type":"other","password":"s3cret-other"}`)
	pod := func(name, networks string) {
		server.PutPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name, Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": networks}},
			Spec:       corev1.PodSpec{NodeName: "n1"},
		})
	}
	pod("good", "lan")
	pod("bad", "lan,broken,self,other,absent")
	c.Must(os.WriteFile(at("config.json"), []byte(fmt.Sprintf(
		`{"logLevel":"debug","logFormat":"json","kubeconfig":%q,"multusAutoconfigDir":%q,"cniConfigDir":%q,"socketDir":%q,"cniDir":%q,"allowedPlugins":["bridge"],"password":"s3cret-key"}`,
		kubeconfig, at("net.d"), at("net.d"), at("run"), at("cni"))), 0o644))
	t.Setenv("MULTUS_NODE_NAME", "n1")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log writer
	ended := make(chan int)
	go func() { ended <- run(ctx, []string{"-config", at("config.json")}, &log, &log) }()
	client := api.NewClient(at("run"))
	defer client.Close()
	c.Eventually("it is ready", func() bool {
		_, err := client.Get(ctx, api.PathReadyz)
		return err == nil
	})
	plan := func(name, more string) (string, error) {
		answer, err := client.Plan(ctx, 10*time.Second, api.PlanRequest{
			Protocol: api.Protocol, ContainerID: name, NetNS: "/ns", Interface: "eth0", Args: "K8S_POD_NAMESPACE=app;K8S_POD_NAME=" + name,
			Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"m","type":"multus-shim","password":"s3cret-caller"` + more + `}`),
		})
		return string(answer.Plan), err
	}
	planned, err := plan("good", "")
	c.Must(err)
	c.Same("the plan has the configuration", true, strings.Contains(planned, "s3cret-nad"))
	_, err = plan("bad", "")
	for _, word := range []string{"app/broken", "app/self", "allowedPlugins", "app/absent"} {
		c.Fails(err, 7, word)
	}
	_, err = plan("good", `,"addTimeout":{"password":"s3cret-type"}`)
	c.Fails(err, 7, "addTimeout")
	c.Same("no secret in an error", false, strings.Contains(err.Error(), secret))
	report := func(r api.Report) {
		r.Protocol, r.ContainerID, r.Pod = api.Protocol, "good", api.Pod{Namespace: "app", Name: "good"}
		_, err := client.Report(ctx, r)
		c.Must(err)
	}
	report(api.Report{Verb: "ADD", Attachments: []api.Attachment{{Network: "main", Interface: "eth0", Addresses: []string{"10.1.0.2/24"}, Millis: 1}}, Millis: 2})
	report(api.Report{Verb: "DEL", Attachments: []api.Attachment{{Network: "main", Interface: "eth0", Addresses: []string{"10.1.0.2/24"}}}, Millis: 2})
	for _, path := range []string{api.PathCNI, api.PathDelegate} { // refused, for there is no chrootDir
		_, err := client.CNI(ctx, path, api.Request{
			Env: map[string]string{"CNI_COMMAND": "ADD", "TOKEN": "s3cret-env"}, Config: []byte(`{"password":"s3cret-delegate"}`),
		})
		c.Fails(err, 999, "no chrootDir")
	}
	server.RequireToken("another") // what the API says of a token that it does not know
	server.CutWatches()
	c.Eventually("the watch is refused", func() bool { return strings.Contains(log.String(), "cannot watch the API") })
	stop()
	c.Same("the daemon's exit", 0, <-ended)

	for _, want := range []string{
		`"level":"verbose","msg":"ADD","pod":"app/good","sandbox":"good","networks":[{"network":"main","interface":"eth0","addresses":["10.1.0.2/24"],"millis":1}],"millis":2}` + "\n",
		`"level":"verbose","msg":"DEL","pod":"app/good","sandbox":"good","networks":[{"network":"main","interface":"eth0","addresses":["10.1.0.2/24"]}],"millis":2}` + "\n",
		`"msg":"a request of an older client failed","path":"/delegate"`,
		`"msg":"no plan"`,
		"05-broken.conf",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if strings.Contains(log.String(), secret) || t.Failed() {
		t.Errorf("the log:\n%s", log.String())
	}
}
