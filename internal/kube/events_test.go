package kube

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/apiserver"
)

var eventPod = plan.Pod{Namespace: "shop", Name: "web", UID: "u1"}

// told is what matters of the events that the server has.
func told(s *apiserver.Server) []string {
	var result []string
	for _, e := range s.Events() {
		about := e["involvedObject"].(apiserver.Object)
		namespace, _ := about["namespace"].(string)
		count := "1"
		if n, ok := e["count"].(interface{ String() string }); ok {
			count = n.String()
		}
		result = append(result, strings.Join([]string{
			e["source"].(apiserver.Object)["component"].(string), about["kind"].(string), namespace + "/" + about["name"].(string),
			about["uid"].(string), e["type"].(string), e["reason"].(string), e["message"].(string), count,
		}, " | "))
	}
	return result
}

func TestC1_11EventsAsUsersKnowThem(t *testing.T) {
	s := startServer(t)
	e := connect(t, s).Events(quiet())
	stop := run(t, e.Run)
	e.Added(eventPod, "net1", []string{"10.1.1.11/24", "fd00::5/64"}, "shop/net-a")
	e.Warn(eventPod, ReasonNoNetworkFound, "cannot find shop/net-b")
	e.Warn(eventPod, ReasonFailedAttaching, "no")
	e.Warn(eventPod, ReasonFailedAttaching, "no")
	e.Disturbed("node1", "10-x.conf goes first")
	stop() // what is queued is sent first
	want := []string{
		"multus | Node | /node1 | node1 | Warning | MultusConfigDisturbed | 10-x.conf goes first | 1",
		"multus | Pod | shop/web | u1 | Normal | AddedInterface | Add net1 [10.1.1.11/24 fd00::5/64] from shop/net-a | 1",
		"multus | Pod | shop/web | u1 | Warning | NoNetworkFound | cannot find shop/net-b | 1",
		"multus | Pod | shop/web | u1 | Warning | FailedAttaching | no | 2",
	}
	if diff := cmp.Diff(want, told(s)); diff != "" {
		t.Error(diff)
	}
}

func TestI2_EventsSurviveAShortOutage(t *testing.T) {
	s := startServer(t)
	e := connect(t, s).Events(quiet())
	s.Refuse()
	run(t, e.Run)
	e.Warn(eventPod, ReasonNoNetworkFound, "x")
	time.AfterFunc(100*time.Millisecond, func() { _ = s.Accept() })
	eventually(t, "event", func() bool { return len(s.Events()) == 1 })
}

func TestI2_EventThatExpiredIsCreatedAgain(t *testing.T) {
	s := startServer(t)
	e := connect(t, s).Events(quiet())
	run(t, e.Run)
	e.Warn(eventPod, ReasonNoNetworkFound, "x")
	eventually(t, "event", func() bool { return len(s.Events()) == 1 })
	s.ExpireEvents()
	e.Warn(eventPod, ReasonNoNetworkFound, "x")
	eventually(t, "repetition", func() bool {
		list := told(s)
		return len(list) == 1 && strings.HasSuffix(list[0], "| 2")
	})
}

func TestI2_EventsNeverBlockAndSayWhatIsLost(t *testing.T) {
	s := startServer(t)
	var log bytes.Buffer
	e := connect(t, s).Events(slog.New(slog.NewTextHandler(&log, nil)))
	for range eventQueue + 1 { // nobody empties the queue
		e.Warn(eventPod, ReasonNoNetworkFound, "x")
	}
	if got := log.String(); strings.Count(got, "the queue is full") != 1 || !strings.Contains(got, "about=shop/web") {
		t.Errorf("log: %s", got)
	}
}

func TestI2_EventsWithoutRBACAreLostWithAReason(t *testing.T) {
	s := startServer(t)
	s.Fail(apiserver.Failure{Method: "POST", Code: http.StatusForbidden, Times: 9})
	var log bytes.Buffer
	e := connect(t, s).Events(slog.New(slog.NewTextHandler(&log, nil)))
	e.Warn(eventPod, ReasonNoNetworkFound, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Run(ctx)
	if !strings.Contains(log.String(), "RBAC must grant the verb create and patch on events") || len(s.Requests()) != 1 {
		t.Errorf("%d requests; log: %s", len(s.Requests()), log.String())
	}
}

func TestI2_EventsEndInTimeWithTheServerDown(t *testing.T) {
	s := startServer(t)
	e := connect(t, s).Events(quiet())
	s.SetLatency(time.Minute)
	for range 3 {
		e.Added(eventPod, "net1", nil, "n")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	e.Run(ctx)
	if spent := time.Since(begin); spent > eventDrain+time.Second {
		t.Errorf("ended after %v", spent)
	}
}
