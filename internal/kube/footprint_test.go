package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

// footprintEnv makes the test's binary a process that only watches, so that its memory
// is not the server's: the value is the path of a kubeconfig.
const footprintEnv = "MULTUS_TEST_FOOTPRINT"

const (
	manyNADs = 5000
	manyPods = 250
)

// TestI2_FootprintOfALargeCluster holds the heap of the tables, and so that nothing of
// an object but what matters stays, and prints the memory of the whole process: design.md
// gives the daemon 30 MiB.
func TestI2_FootprintOfALargeCluster(t *testing.T) {
	streams(t, func(t *testing.T, s *apiserver.Server) {
		fillLargeCluster(s)
		path, err := s.Kubeconfig(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), footprintEnv+"="+path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
		var pods, nads, heap int
		if _, err := fmt.Sscanf(string(out), "%d pods, %d networks, %d KiB", &pods, &nads, &heap); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if pods != manyPods || nads != manyNADs || heap > 10<<10 {
			t.Errorf("%d pods, %d networks, %d KiB of heap", pods, nads, heap)
		}
	})
}

func fillLargeCluster(s *apiserver.Server) {
	const config = `{"cniVersion":"0.3.1","name":"tenant-%05d","plugins":[{"type":"macvlan","master":"bond0.%d","mode":"bridge","mtu":9000,` +
		`"ipam":{"type":"whereabouts","range":"10.%d.%d.0/24","gateway":"10.%[3]d.%[4]d.1","exclude":["10.%[3]d.%[4]d.0/30"],"routes":[{"dst":"10.0.0.0/8"}]}},{"type":"tuning","capabilities":{"mac":true}}]}`
	fieldsV1 := metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:` + strings.Repeat("x", 400) + `":{}}},"f:spec":{".":{},"f:config":{}}}`)
	for i := range manyNADs {
		text := fmt.Sprintf(config, i, i%4000, i/250, i%250)
		s.PutNAD(metav1.ObjectMeta{
			Namespace: fmt.Sprintf("tenant-%03d", i%300), Name: fmt.Sprintf("network-%05d", i),
			Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": text},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply", Operation: "Update", FieldsV1: fieldsV1}},
		}, text)
	}
	for i := range manyPods {
		pod := podWeb()
		pod.Name = fmt.Sprintf("web-%03d", i)
		pod.ManagedFields[0].FieldsV1 = fieldsV1
		s.PutPod(pod)
	}
}

// footprint watches until all is there, and prints what that costs.
func footprint(path string) {
	c, err := Connect(Options{Kubeconfig: path})
	if err != nil {
		panic(err)
	}
	before := heapKiB()
	w := c.Watch("n1", quiet())
	go w.Run(context.Background())
	for !w.Synced() {
		time.Sleep(10 * time.Millisecond)
	}
	after := heapKiB()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d pods, %d networks, %d KiB of heap for them;", len(w.pods.rows), len(w.nads.rows), after-before)
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "RssAnon") {
			fmt.Printf(" %s", strings.Join(strings.Fields(line), " "))
		}
	}
	fmt.Println()
}

func heapKiB() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 10)
}
