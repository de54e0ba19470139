package daemon

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/multus-thick/multus/api"
)

// asks asks for the plan of the pod "web", on a connection of its own; the answer, or
// the end of ctx, comes on the channel.
func (r *running) asks(ctx context.Context, plain bool) (*api.Client, <-chan error) {
	r.Helper()
	c, req, done := r.client(), r.request("web"), make(chan error, 1)
	req.Plain = plain
	go func() {
		_, err := c.Plan(ctx, time.Second, req)
		done <- err
	}()
	return c, done
}

// A place is held from the plan to the report or to the end of the connection; who
// waits is served in order; who leaves the queue never gets a place; plain pods,
// health and DEL's reports do not queue.
func TestT1Queue(t *testing.T) {
	r := run(t, map[string]any{"connectionLimit": 1})
	r.put("web", "u", "")
	first, done := r.asks(t.Context(), false)
	r.Must(<-done)

	leaving, leave := context.WithCancel(t.Context())
	_, gone := r.asks(leaving, false)
	r.Eventually("the second waits", func() bool { return r.d.admission.waiting.Load() == 1 })
	third, thirdDone := r.asks(t.Context(), false)
	r.Eventually("the third waits", func() bool { return r.d.admission.waiting.Load() == 2 })
	_, fourthDone := r.asks(t.Context(), false)
	r.Eventually("the fourth waits", func() bool { return r.d.admission.waiting.Load() == 3 })
	leave()
	if err := <-gone; err == nil {
		t.Error("the second got a plan")
	}
	r.Eventually("the second has left the queue", func() bool { return r.d.admission.waiting.Load() == 2 })

	_, plain := r.asks(t.Context(), true)
	r.Must(<-plain)
	other := r.client()
	if _, err := other.Get(t.Context(), api.PathHealthz); err != nil {
		t.Error(err)
	}
	if _, err := other.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "DEL", NoWait: true}); err != nil {
		t.Error(err)
	}

	if _, err := first.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "ADD", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	r.Must(<-thirdDone)
	select {
	case <-fourthDone:
		t.Error("the fourth was admitted beside the third")
	default:
	}
	third.Close() // killed
	r.Must(<-fourthDone)
	if n := r.d.admission.inFlight(); n != 1 {
		t.Errorf("%d in flight", n)
	}
}

// A refused plan holds no place, and its line reaches the caller with its code.
func TestT1RefusedHoldsNoPlace(t *testing.T) {
	r := run(t, map[string]any{"connectionLimit": 1})
	r.put("web", "u", "missing")
	_, err := r.plan(r.client(), r.request("web"))
	r.Fails(err, 7, "there is no such NetworkAttachmentDefinition")
	if n := r.d.admission.inFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// While the daemon drains it is not ready, and ADDs are told to come again; reports
// are still taken.
func TestT9Draining(t *testing.T) {
	r := run(t, map[string]any{"connectionLimit": 1})
	r.put("web", "u", "")
	c, done := r.asks(t.Context(), false)
	r.Must(<-done)
	r.d.draining.Store(true)
	other := r.client()
	if _, err := other.Get(t.Context(), api.PathReadyz); err == nil {
		t.Error("ready while draining")
	}
	if _, err := other.Get(t.Context(), api.PathHealthz); err != nil {
		t.Errorf("not healthy while draining: %v", err)
	}
	_, late := r.asks(t.Context(), false)
	if err := <-late; !api.TryLater(err) {
		t.Errorf("a late ADD got %v", err)
	}
	if _, err := c.Report(t.Context(), api.Report{Protocol: api.Protocol, Verb: "ADD", NoWait: true}); err != nil {
		t.Error(err)
	}
	idle, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r.d.admission.idle(idle); idle.Err() != nil {
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
