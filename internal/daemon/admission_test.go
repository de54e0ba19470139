package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/ledger"
)

// served runs a daemon's socket with so many places, and asks it as plugins do.
type served struct {
	*testing.T
	d   *Daemon
	dir string
}

func serveSocket(t *testing.T, places int) *served {
	t.Helper()
	d, _ := newDaemon(t)
	d.ConfigFile = []byte(`{}`)
	d.admission = newAdmission(places)
	dir := t.TempDir()
	socket, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := d.socketServer()
	ended := make(chan error, 1)
	go func() { ended <- serve(server, socket) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
		_ = socket.Close()
	})
	return &served{t, d, dir}
}

// plan asks for a plan on a connection of its own; the answer, or the end of ctx,
// comes on the channel.
func (s *served) plan(ctx context.Context, plain bool) (*api.Client, <-chan error) {
	s.Helper()
	place, err := ledger.New(s.d.Config.CNIDir, "").Place()
	if err != nil {
		s.Fatal(err)
	}
	c := api.NewClient(s.dir)
	s.Cleanup(c.Close)
	done := make(chan error, 1)
	go func() {
		_, err := c.Plan(ctx, time.Second, api.PlanRequest{
			Protocol: api.Protocol, Plain: plain, ContainerID: "c", Interface: "eth0", Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p",
			Config: json.RawMessage(`{"cniVersion":"1.0.0","delegates":[{"name":"n","type":"t"}]}`), Ledger: place,
		})
		done <- err
	}()
	return c, done
}

func (s *served) eventually(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			s.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func (s *served) planned(done <-chan error) {
	s.Helper()
	if err := <-done; err != nil {
		s.Fatal(err)
	}
}

// A place is held from the plan to the report or to the end of the connection; who
// waits is served in order; who leaves the queue never gets a place; plain pods,
// health and DEL's reports do not queue.
func TestT1Queue(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after all other clean-ups
	s := serveSocket(t, 1)
	first, done := s.plan(t.Context(), false)
	s.planned(done)

	leaving, leave := context.WithCancel(t.Context())
	_, gone := s.plan(leaving, false)
	s.eventually("the second waits", func() bool { return s.d.admission.waiting.Load() == 1 })
	third, thirdDone := s.plan(t.Context(), false)
	s.eventually("the third waits", func() bool { return s.d.admission.waiting.Load() == 2 })
	_, fourthDone := s.plan(t.Context(), false)
	s.eventually("the fourth waits", func() bool { return s.d.admission.waiting.Load() == 3 })
	leave()
	if err := <-gone; err == nil {
		t.Error("the second got a plan")
	}
	s.eventually("the second has left the queue", func() bool { return s.d.admission.waiting.Load() == 2 })

	_, plain := s.plan(t.Context(), true)
	s.planned(plain)
	other := api.NewClient(s.dir)
	defer other.Close()
	if _, err := other.Get(t.Context(), api.PathHealthz); err != nil {
		t.Error(err)
	}
	if _, err := other.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "DEL", NoWait: true}); err != nil {
		t.Error(err)
	}

	if _, err := first.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "ADD", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	s.planned(thirdDone)
	select {
	case <-fourthDone:
		t.Error("the fourth was admitted beside the third")
	default:
	}
	third.Close() // killed
	s.planned(fourthDone)
	if n := s.d.admission.inFlight(); n != 1 {
		t.Errorf("%d in flight", n)
	}
}

// A refused plan holds no place, and its line reaches the caller with its code.
func TestT1RefusedHoldsNoPlace(t *testing.T) {
	s := serveSocket(t, 1)
	c := api.NewClient(s.dir)
	defer c.Close()
	_, err := c.Plan(t.Context(), time.Second, api.PlanRequest{Protocol: api.Protocol, Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p", Config: json.RawMessage(`{}`)})
	if cni := api.CNIError(err); err == nil || cni.Code != 7 && cni.Code != 11 {
		t.Errorf("got %v", err)
	}
	if n := s.d.admission.inFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// While the daemon drains it is not ready, and ADDs are told to come again; reports
// are still taken.
func TestT9Draining(t *testing.T) {
	s := serveSocket(t, 1)
	c, done := s.plan(t.Context(), false)
	s.planned(done)
	s.d.draining.Store(true)
	other := api.NewClient(s.dir)
	defer other.Close()
	if _, err := other.Get(t.Context(), api.PathReadyz); err == nil {
		t.Error("ready while draining")
	}
	if _, err := other.Get(t.Context(), api.PathHealthz); err != nil {
		t.Errorf("not healthy while draining: %v", err)
	}
	_, late := s.plan(t.Context(), false)
	if err := <-late; !api.TryLater(err) {
		t.Errorf("a late ADD got %v", err)
	}
	if _, err := c.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "ADD", NoWait: true}); err != nil {
		t.Error(err)
	}
	idle, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if s.d.admission.idle(idle); idle.Err() != nil {
		t.Error("the reported ADD is still in flight")
	}
}

// A daemon that comes takes the socket over; the one that goes leaves it there.
func TestR9SocketChangesHands(t *testing.T) {
	dir := t.TempDir()
	old, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	young, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NewServeMux(), ReadHeaderTimeout: time.Second}
	ended := make(chan error, 1)
	go func() { ended <- serve(server, young) }()
	c := api.NewClient(dir)
	defer c.Close()
	if _, err := c.Get(t.Context(), "/"); err == nil || api.TryLater(err) {
		t.Errorf("the young daemon answers %v, want a 404", err)
	}
	if err := errors.Join(server.Close(), <-ended); err != nil {
		t.Error(err)
	}
	_ = young.Close() // the server has closed its listening part
	if left, _ := filepath.Glob(dir + "/*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
