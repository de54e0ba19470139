package kube

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(footprintEnv); path != "" {
		footprint(path) // a process of its own, started by the benchmark
		return
	}
	goleak.VerifyTestMain(m)
}

func startServer(t testing.TB) *apiserver.Server {
	t.Helper()
	s, err := apiserver.Start("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// startTLS starts a server that clients show their credentials to.
func startTLS(t testing.TB, host string) *apiserver.Server {
	t.Helper()
	s, err := apiserver.StartTLS(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func connect(t testing.TB, s *apiserver.Server) *Client {
	t.Helper()
	return connectIn(t, s, t.TempDir())
}

// connectIn leaves the kubeconfig, and the token if one is demanded, in dir.
func connectIn(t testing.TB, s *apiserver.Server, dir string) *Client {
	t.Helper()
	path, err := s.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Options{Kubeconfig: path, UserAgent: "multus-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// run starts a Watch or Events and waits for its end at the end of the test.
func run(t testing.TB, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func watchNode(t testing.TB, c *Client, node string) *Watch {
	t.Helper()
	w := c.Watch(node, quiet())
	run(t, w.Run)
	return w
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// within is a context for one call; a call that outlives it fails by itself.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// podWeb is a pod with much that is not kept.
func podWeb() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web",
			Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{
				netspec.AnnotationNetworks:                         "net-a",
				netspec.AnnotationConfigSource:                     "api",
				"kubectl.kubernetes.io/last-applied-configuration": "{}",
			},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r"}},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodPending,
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "nic"}},
		},
	}
}

func nadMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name,
		Annotations: map[string]string{
			netspec.AnnotationResourceName:                     "vendor.example/nic",
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
		},
	}
}

func uidOf(o apiserver.Object) string {
	return o["metadata"].(apiserver.Object)["uid"].(string)
}
