package kube

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

func TestR1LifeOfAPod(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	ip, controller := []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}, {IP: "none"}}, true
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   audit.Life
	}{
		"pending": {func(*corev1.Pod) {}, audit.Life{}},
		"running": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, ip
			p.OwnerReferences[0].Controller = &controller
		}, audit.Life{Phase: audit.Running, IPs: addresses, Controlled: true}},
		"running, and its sandbox is ready": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, ip
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
		}, audit.Life{Phase: audit.Running, IPs: addresses}},
		"its sandbox is gone": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, ip
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
		}, audit.Life{IPs: addresses}},
		"ended":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, audit.Life{Phase: audit.Exempt}},
		"failed":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, audit.Life{Phase: audit.Exempt}},
		"the node's network": {func(p *corev1.Pod) { p.Status.Phase, p.Spec.HostNetwork = corev1.PodRunning, true }, audit.Life{Phase: audit.Exempt}},
	} {
		p := podWeb()
		tt.change(p)
		uid := uidOf(s.PutPod(p))
		got, err := c.Life(t.Context(), plan.Pod{Namespace: "shop", Name: "web", UID: uid})
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	for _, gone := range []plan.Pod{{Namespace: "shop", Name: "web", UID: "another"}, {Namespace: "shop", Name: "none"}} {
		if _, err := c.Life(t.Context(), gone); !errors.Is(err, gather.ErrNotFound) {
			t.Errorf("%s: %v", gone, err)
		}
	}
	s.Fail(apiserver.Failure{Times: 1, Code: http.StatusForbidden})
	if _, err := c.Life(t.Context(), plan.Pod{Namespace: "shop", Name: "web"}); !errors.Is(err, gather.ErrNotYet) {
		t.Errorf("not allowed: %v", err)
	}
}

func TestR15LivePods(t *testing.T) {
	s := startServer(t)
	w := connect(t, s).Watch("n1", quiet())
	if all, err := w.LivePods(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("got %v, %v", all, err)
	}
	for _, name := range []string{"a", "b", "elsewhere"} {
		p := podWeb()
		p.Name = name
		if name == "elsewhere" {
			p.Spec.NodeName = "n2"
		}
		s.PutPod(p)
	}
	all, err := w.LivePods(t.Context())
	var names []string
	for _, p := range all {
		names = append(names, p.String())
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"shop/a", "shop/b"}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	s.Fail(apiserver.Failure{Times: 1, Code: http.StatusForbidden})
	if _, err := w.LivePods(t.Context()); err == nil {
		t.Error("an answer that says nothing is taken for one")
	}
}

func TestI5_Eviction(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	uid := uidOf(s.PutPod(podWeb()))
	pod := plan.Pod{Namespace: "shop", Name: "web", UID: "another"}
	if err := c.Evict(t.Context(), pod); err == nil {
		t.Error("another pod of the name was evicted")
	}
	pod.UID = uid
	s.Fail(apiserver.Failure{Times: 1, Code: http.StatusForbidden})
	if err := c.Evict(t.Context(), pod); err == nil || err.Error()[:70] != "evicting pod shop/web: RBAC must grant the verb create on pods/eviction"[:70] {
		t.Errorf("got %v", err)
	}
	for range 2 { // the second time it is gone
		if err := c.Evict(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Live(t.Context(), "shop", "web"); !errors.Is(err, gather.ErrNotFound) {
		t.Errorf("the pod is there: %v", err)
	}
}
