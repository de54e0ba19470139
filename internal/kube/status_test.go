package kube

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

const statusText = `[{"name":"shop/net-a","interface":"net1"}]`

// withStatus is the pod as it must be after the patch: the annotation and the version
// have changed, and nothing else.
func withStatus(before, after apiserver.Object) apiserver.Object {
	want := maps.Clone(before)
	m := maps.Clone(before["metadata"].(apiserver.Object))
	a := maps.Clone(m["annotations"].(apiserver.Object))
	a[netspec.AnnotationStatus] = statusText
	m["annotations"] = a
	m["resourceVersion"] = after["metadata"].(apiserver.Object)["resourceVersion"]
	want["metadata"] = m
	return want
}

func TestT19StatusPatchSurvivesPassingFailures(t *testing.T) {
	for name, failures := range map[string][]apiserver.Failure{
		"none":         nil,
		"409 twice":    {{Code: 409, Times: 2}},
		"500 once":     {{Code: 500, Times: 1}},
		"409, 409,500": {{Code: 409, Times: 2}, {Code: 500, Times: 1}},
		"429":          {{Code: 429, Times: 1}},
		"401":          {{Code: 401, Times: 1}},
		"503":          {{Code: 503, Times: 3}},
		"invalid then fine, of an API server that is starting": {{Code: 408, Times: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			c := connect(t, s)
			before := s.PutPod(podWeb())
			for _, f := range failures {
				f.Method = http.MethodPatch
				s.Fail(f)
			}
			pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(before)}
			if err := c.PatchStatus(within(t, 5*time.Second), pod, statusText); err != nil {
				t.Fatal(err)
			}
			after := s.Pod("shop", "web")
			if diff := cmp.Diff(withStatus(before, after), after); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestT19StatusPatchOutlivesADeadServer(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	before := s.PutPod(podWeb())
	s.Refuse()
	time.AfterFunc(250*time.Millisecond, func() { _ = s.Accept() })
	pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(before)}
	if err := c.PatchStatus(within(t, 5*time.Second), pod, statusText); err != nil {
		t.Fatal(err)
	}
}

// TestC1_12StatusUnderTheRoleOfV4: its ClusterRole grants update where ours grants patch.
func TestC1_12StatusUnderTheRoleOfV4(t *testing.T) {
	const (
		patch = "PATCH /api/v1/namespaces/shop/pods/web/status"
		read  = "GET /api/v1/namespaces/shop/pods/web"
		write = "PUT /api/v1/namespaces/shop/pods/web/status"
	)
	for name, c := range map[string]struct {
		failure  apiserver.Failure
		replaced bool
		want     string // of the error
		requests []string
	}{
		"written":        {requests: []string{patch, read, write}},
		"conflict":       {failure: apiserver.Failure{Code: 409, Times: 1}, requests: []string{patch, read, write, read, patch, read, write}},
		"another pod":    {replaced: true, want: "the pod is gone", requests: []string{patch, read, write, read}},
		"also forbidden": {failure: apiserver.Failure{Code: 403, Times: 1}, want: "RBAC must grant the verb patch on pods/status", requests: []string{patch, read, write}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			client := connect(t, s)
			before := s.PutPod(podWeb())
			pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(before)}
			if c.replaced {
				s.DeletePod("shop", "web")
				before = s.PutPod(podWeb())
			}
			s.Fail(apiserver.Failure{Method: http.MethodPatch, Code: 403, Times: 9})
			c.failure.Method = http.MethodPut
			s.Fail(c.failure)
			err := client.PatchStatus(within(t, 5*time.Second), pod, statusText)
			after := s.Pod("shop", "web")
			want := before
			if c.want == "" {
				want = withStatus(before, after)
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			var requests []string
			for _, r := range s.Requests() {
				requests = append(requests, r.String())
			}
			if diff := cmp.Diff(c.requests, requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestT19StatusPatchIsOneRequest is the budget of design.md: one PATCH, no read.
func TestT19StatusPatchIsOneRequest(t *testing.T) {
	s := startServer(t)
	c := connect(t, s)
	uid := uidOf(s.PutPod(podWeb()))
	for _, pod := range []plan.Pod{{Namespace: "shop", Name: "web", UID: uid}, {Namespace: "shop", Name: "web"}} {
		s.ResetRequests()
		if err := c.PatchStatus(t.Context(), pod, "x"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range s.Requests() {
			got = append(got, r.String()+" "+r.Header.Get("Content-Type")+" "+r.Body)
		}
		guard := ""
		if pod.UID != "" {
			guard = `"uid":"` + uid + `",`
		}
		want := []string{`PATCH /api/v1/namespaces/shop/pods/web/status application/merge-patch+json ` +
			`{"metadata":{` + guard + `"annotations":{"k8s.v1.cni.cncf.io/network-status":"x"}}}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestT19StatusIsNeverWrittenToAnotherPod(t *testing.T) {
	for name, code := range map[string]int{
		"replaced before":           0,
		"replaced during a retry":   409,
		"said as an invalid change": 422,
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			c := connect(t, s)
			pod := plan.Pod{Namespace: "shop", Name: "web", UID: uidOf(s.PutPod(podWeb()))}
			replace := func() {
				s.DeletePod("shop", "web")
				s.PutPod(podWeb())
			}
			if code == 0 {
				replace()
			} else {
				s.Fail(apiserver.Failure{Method: http.MethodPatch, Code: code, Times: 1, Do: replace})
			}
			err := c.PatchStatus(within(t, 5*time.Second), pod, statusText)
			if !errors.Is(err, ErrPodGone) {
				t.Errorf("error %v", err)
			}
			if _, written := s.Pod("shop", "web")["metadata"].(apiserver.Object)["annotations"].(apiserver.Object)[netspec.AnnotationStatus]; written {
				t.Error("the new pod has the status of the old one")
			}
		})
	}
}

func TestT19StatusPatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		pod     string
		failure apiserver.Failure
		is      error
		text    string
		patches int // 0 for many
	}{
		"deleted":   {"gone", apiserver.Failure{}, ErrPodGone, "network-status of pod shop/gone: the pod is gone", 1},
		"invalid":   {"web", apiserver.Failure{Code: 422, Times: 99}, nil, "Unprocessable Entity", 1},
		"conflicts": {"web", apiserver.Failure{Code: 409, Times: 99}, gather.ErrNotYet, "Conflict", 0},
		"failing":   {"web", apiserver.Failure{Code: 500, Times: 99}, gather.ErrNotYet, "Internal Server Error", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			client := connect(t, s)
			pod := plan.Pod{Namespace: "shop", Name: c.pod, UID: uidOf(s.PutPod(podWeb()))}
			c.failure.Method = http.MethodPatch
			s.Fail(c.failure)
			err := client.PatchStatus(within(t, 500*time.Millisecond), pod, statusText)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v", err)
			}
			if c.is != nil && !errors.Is(err, c.is) || c.is == nil && (errors.Is(err, gather.ErrNotYet) || errors.Is(err, ErrPodGone)) {
				t.Errorf("error of the wrong kind: %v", err)
			}
			if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
				t.Errorf("the API's answer is lost: %v", err)
			}
			patches := 0
			for _, r := range s.Requests() {
				if r.Method == http.MethodPatch {
					patches++
				}
			}
			if c.patches != 0 && patches != c.patches || c.patches == 0 && (patches < 2 || patches > 5) {
				t.Errorf("%d patches", patches)
			}
		})
	}
}
