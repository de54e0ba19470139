package kube

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

// conditions are "type status reason message" of a pod.
func conditions(s *apiserver.Server) (all []string) {
	status := s.Pod("shop", "web")["status"].(apiserver.Object)
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		o := c.(apiserver.Object)
		line := fmt.Sprintf("%v %v", o["type"], o["status"])
		if o["reason"] != nil {
			line += fmt.Sprintf(" %v", o["reason"])
		}
		if o["message"] != nil {
			line += fmt.Sprintf(" %v", o["message"])
		}
		all = append(all, line)
	}
	return all
}

// The condition appears with the first difference, is written when it changes alone, and
// leaves all others as they are.
func TestI5_ConditionOfAPod(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(s.PutPod(podWeb()))}
	const kubelets = "Ready False"
	for _, step := range []struct {
		differs string
		writes  int
		want    []string
	}{
		{"", 0, []string{kubelets}},
		{"net-a is not there", 1, []string{kubelets, "multus-cni.io/NetworksAttached False NetworksDiffer net-a is not there"}},
		{"net-a is not there", 0, []string{kubelets, "multus-cni.io/NetworksAttached False NetworksDiffer net-a is not there"}},
		{"net-a fails", 1, []string{kubelets, "multus-cni.io/NetworksAttached False NetworksDiffer net-a fails"}},
		{"", 1, []string{kubelets, "multus-cni.io/NetworksAttached True NetworksAttached"}},
		{"", 0, []string{kubelets, "multus-cni.io/NetworksAttached True NetworksAttached"}},
	} {
		s.ResetRequests()
		if err := c.ReportNetworks(t.Context(), pod, step.differs); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, conditions(s)); diff != "" {
			t.Errorf("%q: %s", step.differs, diff)
		}
		if writes := len(s.Requests()) - 1; writes != step.writes {
			t.Errorf("%q: %d writes, want %d", step.differs, writes, step.writes)
		}
	}
	pod.UID = "another"
	if err := c.ReportNetworks(t.Context(), pod, "x"); !errors.Is(err, ErrPodGone) {
		t.Errorf("another pod: %v", err)
	}
	s.DeletePod("shop", "web")
	if err := c.ReportNetworks(t.Context(), pod, "x"); !errors.Is(err, ErrPodGone) {
		t.Errorf("no pod: %v", err)
	}
}

func TestI5_ConditionNeedsThePatch(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(s.PutPod(podWeb()))}
	s.Fail(apiserver.Failure{Method: http.MethodPatch, Code: http.StatusForbidden, Times: 1})
	err := c.ReportNetworks(t.Context(), pod, "x")
	const want = "condition multus-cni.io/NetworksAttached of pod shop/web: RBAC must grant the verb patch on pods/status: Forbidden"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Who follows hears of each pod that comes, changes or goes, and of definitions.
func TestI5_Follow(t *testing.T) {
	streams(t, func(t *testing.T, s *apiserver.Server) {
		var mu sync.Mutex
		heard := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			heard[what]++
		}
		await := func(what string, more int) {
			t.Helper()
			eventually(t, what, func() bool {
				mu.Lock()
				defer mu.Unlock()
				if heard[what] < more {
					return false
				}
				heard[what] = 0
				return true
			})
		}
		s.PutPod(podWeb())
		w := connect(t, s).Watch("n1", quiet())
		w.Follow(func(namespace, name string) { note(namespace + "/" + name) }, func() { note("networks") })
		run(t, w.Run)
		await("shop/web", 1)
		eventually(t, "sync", w.Synced)
		changed := podWeb()
		changed.Annotations[netspec.AnnotationNetworks] = "net-b"
		s.PutPod(changed)
		await("shop/web", 1)
		now := metav1.Now()
		changed.DeletionTimestamp = &now
		s.PutPod(changed)
		await("shop/web", 1)
		if pod, _ := w.Cached("shop", "web"); !pod.Deleting {
			t.Error("the pod is not known to be deleted")
		}
		s.DeletePod("shop", "web")
		await("shop/web", 1)
		s.PutPod(podWeb())
		await("shop/web", 1)
		s.Refuse() // the list that follows lacks the pod
		s.CutWatches()
		s.DeletePod("shop", "web")
		s.Forget()
		if err := s.Accept(); err != nil {
			t.Fatal(err)
		}
		await("shop/web", 1)
		if all := w.Pods(); len(all) != 0 {
			t.Errorf("pods: %v", all)
		}
		s.PutNAD(nadMeta("net-a"), "{}")
		await("networks", 1)
		s.DeleteNAD("shop", "net-a")
		await("networks", 1)
	})
}

func TestI5_NotesAndWarnings(t *testing.T) {
	s := startServer(t)
	e := connect(t, s).Events(quiet())
	run(t, e.Run)
	pod := plan.Pod{Namespace: "shop", Name: "web", UID: "u"}
	e.Note(pod, "RemovedInterface", "Remove net1 from shop/net-a")
	e.Warn(pod, "FailedAddingInterface", "no")
	var got []string
	eventually(t, "two events", func() bool { return len(s.Events()) == 2 })
	for _, o := range s.Events() {
		got = append(got, fmt.Sprintf("%v %v %v", o["type"], o["reason"], o["message"]))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"Normal RemovedInterface Remove net1 from shop/net-a", "Warning FailedAddingInterface no"}, got); diff != "" {
		t.Error(diff)
	}
}
