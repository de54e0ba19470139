package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// TestMain is also a process of another user than root, for the socket's sake.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STRANGER_TO"); dir != "" {
		os.Exit(strangerCalls(dir))
	}
	os.Exit(m.Run())
}

// fakeCluster is a cluster whose pods and networks are as the test says, and which
// remembers what it is told.
type fakeCluster struct {
	mu      sync.Mutex
	pods    map[string]gather.Pod // by "namespace/name"
	nads    map[string]string     // configurations
	problem string
	synced  time.Time
	patch   func(ctx context.Context) error // nil for success
	lives   map[string]audit.Life           // by "namespace/name"
	asked   func(plan.Pod)                  // by Life; nil for nothing
	evict   error                           // of Evict
	ends    error                           // of Run, at once, where it is not nil
	told    []string                        // patches, events and conditions
	changed func(namespace, name string)
}

var _ Cluster = (*fakeCluster)(nil)

func newCluster() *fakeCluster {
	return &fakeCluster{pods: map[string]gather.Pod{}, nads: map[string]string{}, lives: map[string]audit.Life{}}
}

func (c *fakeCluster) Cached(namespace, name string) (gather.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.pods[namespace+"/"+name]
	return pod, ok
}

func (c *fakeCluster) Live(_ context.Context, namespace, name string) (gather.Pod, error) {
	if pod, ok := c.Cached(namespace, name); ok {
		return pod, nil
	}
	return gather.Pod{}, gather.ErrNotFound
}

func (c *fakeCluster) Network(_ context.Context, ref netspec.Ref) (plan.NAD, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conf, ok := c.nads[ref.String()]
	if !ok {
		return plan.NAD{}, gather.ErrNotFound
	}
	return plan.NAD{Ref: ref, Config: conf}, nil
}

func (c *fakeCluster) Pods() []gather.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods))
}

func (c *fakeCluster) LivePods(context.Context) ([]gather.Pod, error) { return c.Pods(), nil }

func (c *fakeCluster) Life(_ context.Context, pod plan.Pod) (audit.Life, error) {
	if c.asked != nil {
		c.asked(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	life, ok := c.lives[pod.String()]
	if !ok {
		return life, gather.ErrNotFound
	}
	return life, nil
}

func (c *fakeCluster) Evict(_ context.Context, pod plan.Pod) error {
	c.tell("eviction of %s", pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evict
}

func (c *fakeCluster) ReportNetworks(_ context.Context, pod plan.Pod, differs string) error {
	c.tell("networks of %s: %s", pod, cmp.Or(differs, "as selected"))
	return nil
}

func (c *fakeCluster) Note(pod plan.Pod, reason, message string) {
	c.tell("%s of %s: %s", reason, pod, message)
}

func (c *fakeCluster) Warn(pod plan.Pod, reason, message string) {
	c.tell("%s of %s: %s", reason, pod, message)
}

func (c *fakeCluster) Run(ctx context.Context) error {
	if c.ends != nil {
		return c.ends
	}
	<-ctx.Done()
	return nil
}

func (c *fakeCluster) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

func (c *fakeCluster) LastSync() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

func (c *fakeCluster) PatchStatus(ctx context.Context, pod plan.Pod, text string) error {
	c.mu.Lock()
	patch := c.patch
	c.mu.Unlock()
	if patch != nil {
		if err := patch(ctx); err != nil {
			return err
		}
	}
	c.tell("status of %s %s: %s", pod, pod.UID, text)
	return nil
}

func (c *fakeCluster) Added(pod plan.Pod, ifName string, ips []string, network string) {
	c.tell("event on %s: %s %v from %s", pod, ifName, ips, network)
}

func (c *fakeCluster) Refused(pod plan.Pod, message string) {
	c.tell("event on %s: %s", pod, message)
}

func (c *fakeCluster) Disturbed(message string) { c.tell("disturbed: %s", message) }

func (c *fakeCluster) Follow(pod func(namespace, name string), _ func()) { c.changed = pod }

func (c *fakeCluster) tell(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

// heard is what it was told since the last look.
func (c *fakeCluster) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.told
	c.told = nil
	return told
}

func (c *fakeCluster) set(change func(*fakeCluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// put puts a pod.
func (c *fakeCluster) put(name, uid, networks string) {
	c.set(func(c *fakeCluster) {
		pod := plan.Pod{Namespace: "app", Name: name, UID: uid}
		c.pods[pod.String()] = gather.Pod{Subject: plan.Subject{Pod: pod, Annotations: map[string]string{netspec.AnnotationNetworks: networks}}}
	})
}

// running is a daemon that runs, with the socket in dir.
type running struct {
	check.T
	*fakeCluster
	d     *Daemon
	dir   string
	stop  context.CancelFunc
	ended chan error // gets what Run returned
}

// prepare makes a daemon with keys in its file, of changed options, and does not run it.
func prepare(t *testing.T, keys map[string]any, change ...func(*Options)) *running {
	t.Helper()
	none := goleak.IgnoreCurrent()
	dir, err := os.MkdirTemp("", "daemon") // t.TempDir's is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		goleak.VerifyNone(t, none)
	})
	r := &running{T: check.T{T: t}, fakeCluster: newCluster(), dir: dir, ended: make(chan error, 1)}
	r.write("10-primary.conf", `{"cniVersion":"1.0.0","name":"primary","type":"bridge"}`)
	file := map[string]any{"cniDir": r.path("state"), "socketDir": dir, "clusterNetwork": r.path("10-primary.conf"), "drainTimeout": "10s"}
	for key, value := range keys {
		file[key] = value
	}
	text, err := json.Marshal(file)
	r.Must(err)
	cfg, _, err := config.Parse(text)
	r.Must(err)
	options := Options{
		Config: cfg, ConfigFile: text, Cluster: r.fakeCluster, Log: slog.New(slog.DiscardHandler), BootID: "boot",
		Environ: []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "GODEBUG=x=y", "SECRET=s"},
	}
	for _, c := range change {
		c(&options)
	}
	r.d, err = New(options)
	r.Must(err)
	return r
}

// run makes a daemon, runs it, and stops it at the end of the test.
func run(t *testing.T, keys map[string]any) *running {
	t.Helper()
	r := prepare(t, keys)
	r.start()
	return r
}

func (r *running) start() {
	r.Helper()
	ctx, stop := context.WithCancel(r.Context())
	r.stop = stop
	go func() { r.ended <- r.d.Run(ctx) }()
	r.Cleanup(func() {
		stop()
		r.end()
	})
	r.Eventually("it serves", func() bool { return r.status(http.MethodGet, api.PathHealthz, "") == http.StatusOK })
}

// end waits for the daemon's end, once.
func (r *running) end() {
	r.Helper()
	select {
	case err, open := <-r.ended:
		if open {
			close(r.ended)
		}
		if err != nil {
			r.Error(err)
		}
	case <-time.After(20 * time.Second):
		r.Fatal("the daemon did not end")
	}
}

// http asks over the socket, on a connection of its own.
func (r *running) http(method, path, body string) (status int, answer string) {
	r.Helper()
	return r.ask("unix", filepath.Join(r.dir, api.SocketName), method, path, body)
}

func (r *running) ask(network, address, method, path, body string) (status int, answer string) {
	r.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), method, "http://dummy"+path, strings.NewReader(body))
	r.Must(err)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	r.Must(err)
	return resp.StatusCode, string(bytes.TrimSpace(got))
}

func (r *running) status(method, path, body string) int {
	status, _ := r.http(method, path, body)
	return status
}

// client is a plugin's.
func (r *running) client() *api.Client {
	c := api.NewClient(r.dir)
	r.Cleanup(c.Close)
	return c
}

// request asks for the plan of a pod.
func (r *running) request(pod string) api.PlanRequest {
	r.Helper()
	place, err := ledger.New(r.path("state"), "boot").Place()
	r.Must(err)
	return api.PlanRequest{
		Protocol: api.Protocol, ContainerID: "c1", NetNS: "/ns", Interface: "eth0", Args: "K8S_POD_NAMESPACE=app;K8S_POD_NAME=" + pod,
		Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"m","type":"multus-shim"}`), Ledger: place,
	}
}

func (r *running) plan(c *api.Client, req api.PlanRequest) (*plan.Plan, error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second) // it may queue, but not for ever
	defer cancel()
	answer, err := c.Plan(ctx, time.Second, req)
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	r.Must(json.Unmarshal(answer.Plan, &p))
	return &p, nil
}

func (r *running) path(name string) string { return filepath.Join(r.dir, name) }

func (r *running) write(name, content string) {
	r.Helper()
	r.Must(os.WriteFile(r.path(name), []byte(content), 0o600))
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

var errAway = errors.New("the API is away")
