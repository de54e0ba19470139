package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// folder is short: a socket's path has 107 bytes at most.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// daemon is a server on a real socket that knows its connections.
type daemon struct {
	*http.Server
	mu     sync.Mutex
	opened int
	states chan http.ConnState // closed connections
}

func serve(t *testing.T, dir string, handler http.HandlerFunc) *daemon {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{states: make(chan http.ConnState, 100)}
	d.Server = &http.Server{Handler: handler, ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			d.mu.Lock()
			defer d.mu.Unlock()
			d.opened++
		case http.StateClosed:
			d.states <- s
		}
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Serve(listener)
	}()
	t.Cleanup(func() {
		d.Server.Close()
		<-done
	})
	return d
}

func (d *daemon) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened
}

func client(t *testing.T, dir string) *Client {
	t.Helper()
	c := NewClient(dir)
	t.Cleanup(c.Close)
	return c
}

var request = PlanRequest{
	Protocol: Protocol, Plain: true, ContainerID: "c", NetNS: "/n", Interface: "eth0", Args: "K8S_POD_NAME=p",
	Config: json.RawMessage(`{"big":9007199254740993}`), RuntimeConfig: map[string]json.RawMessage{"x": json.RawMessage(`[1]`)},
	Ledger: Place{Path: "/l", Device: 1 << 63, Inode: 2, BootID: "b"},
}

func TestC1_8PlanAndReportCross(t *testing.T) {
	report := Report{
		Protocol: Protocol, Verb: "ADD", ContainerID: "c", NetNS: "/n", Pod: Pod{Namespace: "ns", Name: "p", UID: "u"}, NoWait: true, Millis: 7,
		Error:       types.NewError(7, "m", "d"),
		Attachments: []Attachment{{Network: "ns/n", Interface: "net1", Plugins: []string{"x"}, Status: []json.RawMessage{json.RawMessage(`{"n":9007199254740993}`)}, Failed: true}},
	}
	var plan PlanRequest
	var reported Report
	var seen []string
	dir := folder(t)
	d := serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Host+r.URL.Path+" "+r.Header.Get("Content-Type"))
		switch r.URL.Path {
		case PathPlan:
			if err := json.NewDecoder(r.Body).Decode(&plan); err != nil {
				WriteError(w, err)
				return
			}
			WriteJSON(w, http.StatusOK, PlanResponse{Plan: json.RawMessage(`{"big":9007199254740993}`)})
		case PathReport:
			if err := json.NewDecoder(r.Body).Decode(&reported); err != nil {
				WriteError(w, err)
				return
			}
			WriteJSON(w, http.StatusOK, ReportResponse{Published: true})
		}
	})
	c := client(t, dir)
	answer, err := c.Plan(t.Context(), 0, request)
	if err != nil || string(answer.Plan) != `{"big":9007199254740993}` {
		t.Fatalf("Plan gives %s, %v", answer.Plan, err)
	}
	published, err := c.Report(t.Context(), report)
	if err != nil || !published.Published {
		t.Fatalf("Report gives %v, %v", published, err)
	}
	if diff := cmp.Diff(request, plan) + cmp.Diff(report, reported); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"POST dummy/v1/plan application/json", "POST dummy/v1/report application/json"}, seen); diff != "" {
		t.Error(diff)
	}
	if n := d.connections(); n != 1 {
		t.Errorf("%d connections were opened, want one for both", n)
	}
	select {
	case s := <-d.states:
		t.Errorf("the connection is %v before Close", s)
	default:
	}
	c.Close()
	select {
	case <-d.states: // the daemon can give the place back
	case <-time.After(10 * time.Second):
		t.Error("Close left the connection open")
	}
}

func TestC1_8OtherCalls(t *testing.T) {
	dir := folder(t)
	var got Request
	serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case PathHealthz:
			fmt.Fprint(w, r.Method)
		case PathCNI:
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &got); err != nil {
				WriteError(w, err)
				return
			}
			fmt.Fprint(w, `{"Result":{"cniVersion":"1.0.0"}}`)
		case PathDelegate: // DEL is answered with nothing
		default:
			http.NotFound(w, r)
		}
	})
	c := client(t, dir)
	sent := Request{Env: map[string]string{"CNI_COMMAND": "ADD"}, Config: []byte(`{"x":1}`), InterfaceAttributes: &DelegateInterfaceAttributes{IPRequest: []string{"10.0.0.1/24"}, MacRequest: "m"}}
	health, err := c.Get(t.Context(), PathHealthz)
	answer, err2 := c.CNI(t.Context(), PathCNI, sent)
	nothing, err3 := c.CNI(t.Context(), PathDelegate, sent)
	if errors.Join(err, err2, err3) != nil || string(health) != "GET" || string(answer.Result) != `{"cniVersion":"1.0.0"}` || nothing.Result != nil {
		t.Errorf("%v %v %v: %q, %s, %s", err, err2, err3, health, answer.Result, nothing.Result)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
	if _, err := c.Get(t.Context(), "/none"); fmt.Sprint(err) != `the daemon answered HTTP 404: "404 page not found"` {
		t.Errorf("a path that is not there gives %v", err)
	}
}

// The daemon of a node that boots comes up while a plugin waits for it.
func TestT4SocketAppearsLater(t *testing.T) {
	dir := folder(t)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, SocketName)})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close() // the socket of a daemon that is gone, and nobody behind it
	c := client(t, dir)
	if _, err := c.Plan(t.Context(), 0, request); CNIError(err) == nil || CNIError(err).Code != types.ErrTryAgainLater {
		t.Fatalf("nobody behind the socket gives %v", err)
	}
	type result struct {
		answer PlanResponse
		err    error
	}
	asked := make(chan result, 1)
	go func() {
		answer, err := c.Plan(t.Context(), 30*time.Second, request)
		asked <- result{answer, err}
	}()
	if err := os.Remove(filepath.Join(dir, SocketName)); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, PlanResponse{Plan: json.RawMessage(`1`)})
	})
	if r := <-asked; r.err != nil || string(r.answer.Plan) != "1" {
		t.Errorf("the answer is %s, %v", r.answer.Plan, r.err)
	}
}

func TestT4SocketNeverAppears(t *testing.T) {
	dir := folder(t)
	short, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		wait time.Duration
	}{
		"no patience":        {t.Context(), 50 * time.Millisecond},
		"some":               {t.Context(), 250 * time.Millisecond},
		"the caller's ended": {short, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client(t, dir).Plan(c.ctx, c.wait, request)
			want := "the Multus daemon does not answer on " + filepath.Join(dir, SocketName) + " (waited "
			cni := CNIError(err)
			if cni == nil || cni.Code != types.ErrTryAgainLater || !strings.HasPrefix(cni.Msg, want) || strings.Contains(cni.Msg, "1h") || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got  %v\nwant code 11, %s...", err, want)
			}
		})
	}
	_, err := client(t, dir).Report(t.Context(), Report{})
	if cni := CNIError(err); cni == nil || cni.Code != types.ErrTryAgainLater || !strings.HasPrefix(cni.Msg, "the Multus daemon on "+filepath.Join(dir, SocketName)+": ") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a report to nobody gives %v", err)
	}
}

func TestC1_20CNIErrorsPassUnchanged(t *testing.T) {
	for _, want := range []*types.Error{types.NewError(7, "bad config", "key x"), types.NewError(11, "queue is full", ""), types.NewError(150, "own", "")} {
		dir := folder(t)
		var asked atomic.Int32
		serve(t, dir, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			WriteJSON(w, http.StatusBadRequest, want)
		})
		c := client(t, dir)
		_, err := c.Plan(t.Context(), time.Hour, request)
		_, err2 := c.Report(t.Context(), Report{})
		_, err3 := c.CNI(t.Context(), PathCNI, Request{})
		for _, err := range []error{err, err2, err3} {
			if diff := cmp.Diff(error(want), err); diff != "" {
				t.Error(diff)
			}
		}
		if asked.Load() != 3 {
			t.Errorf("the daemon was asked %d times, want 3: an answer is an answer", asked.Load())
		}
	}
}

// Requests that got no whole answer may succeed later, and are not sent twice.
func TestT2DaemonDiesInTheMiddle(t *testing.T) {
	hang := func(w http.ResponseWriter) net.Conn {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		return conn
	}
	for name, die := range map[string]func(http.ResponseWriter){
		"before the answer": func(w http.ResponseWriter) { hang(w).Close() },
		"in the header": func(w http.ResponseWriter) {
			conn := hang(w)
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 O")
		},
		"in the body": func(w http.ResponseWriter) {
			conn := hang(w)
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"plan\":")
		},
		"with a half answer": func(w http.ResponseWriter) { fmt.Fprint(w, `{"plan":`) },
		"with a plain error": func(w http.ResponseWriter) { http.Error(w, "going down", http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			var asked atomic.Int32
			serve(t, dir, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				die(w)
			})
			_, err := client(t, dir).Plan(t.Context(), time.Hour, request)
			cni := CNIError(err)
			if cni == nil || cni.Code != types.ErrTryAgainLater || !strings.HasPrefix(cni.Msg, "the Multus daemon on "+filepath.Join(dir, SocketName)+": ") {
				t.Errorf("the error is %v", err)
			}
			if asked.Load() != 1 {
				t.Errorf("the daemon was asked %d times", asked.Load())
			}
		})
	}
}

func TestR12NoAnswerInTime(t *testing.T) {
	dir := folder(t)
	arrived, gone := make(chan struct{}), make(chan struct{})
	serve(t, dir, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http watches the connection from here on
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	c := client(t, dir)
	go func() {
		_, err := c.Plan(ctx, time.Hour, request)
		asked <- err
	}()
	<-arrived
	cancel()
	err := <-asked
	if cni := CNIError(err); cni == nil || cni.Code != types.ErrTryAgainLater || !strings.Contains(cni.Msg, "no answer in time, it may be busy with other pods: ") || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	<-gone // the daemon sees that its caller has left
}

// A daemon that was replaced between Plan and Report is found again.
func TestR9ReportToTheNextDaemon(t *testing.T) {
	dir := folder(t)
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }
	first := serve(t, dir, ok)
	c := client(t, dir)
	if _, err := c.Plan(t.Context(), 0, request); err != nil {
		t.Fatal(err)
	}
	if err := first.Server.Close(); err != nil {
		t.Fatal(err)
	}
	second := serve(t, dir, ok)
	if _, err := c.Report(t.Context(), Report{}); err != nil || second.connections() != 1 {
		t.Errorf("%v; %d connections", err, second.connections())
	}
}
