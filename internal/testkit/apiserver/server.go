package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Server is a running API server. Its methods may be called at any time, from any
// goroutine.
type Server struct {
	url  string // the port stays for the Server's life
	addr string
	tls  *identity // nil for plain HTTP

	handlers sync.WaitGroup

	mu       sync.Mutex
	http     *http.Server // nil while connections are refused
	serving  chan struct{}
	store    store
	script   script
	requests []Request
	cut      chan struct{} // closed, and made anew, to end all watches
}

// script is what the server has been told to do wrong.
type script struct {
	latency   time.Duration
	token     string
	user      string
	failures  []*Failure
	unserved  map[string]bool
	noStreams bool
	lifetime  time.Duration // of the certificates that are signed
}

// Request is one request that arrived, also one that was made to fail.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header
	Body   string
	User   string // the common name of the client's certificate; "" for none
}

// String is "METHOD /path".
func (r Request) String() string { return r.Method + " " + r.Path }

// Failure makes matching requests fail.
type Failure struct {
	Method string // "" for any
	Path   string // a part of the path; "" for any
	Watch  bool   // only watches
	Code   int    // the HTTP status of the answer
	Times  int    // how many requests fail; then the Failure is spent
	// Do runs before the answer is sent, and may change objects, but must not close the
	// server. It may be nil.
	Do func()
}

// Start serves on a free port of host, an address of the loopback interface such as
// "127.0.0.1" or "::1", or a name for one.
func Start(host string) (*Server, error) { return start(host, nil) }

// StartTLS is Start with HTTPS, under a certificate authority of its own (CA). Clients
// send no credentials without it.
func StartTLS(host string) (*Server, error) {
	id, err := newIdentity(host)
	if err != nil {
		return nil, fmt.Errorf("test API server: %w", err)
	}
	return start(host, id)
}

func start(host string, id *identity) (*Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("test API server: %w", err)
	}
	addr := listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	s := &Server{
		addr:  addr,
		url:   "http://" + net.JoinHostPort(host, port),
		tls:   id,
		store: newStore(),
		cut:   make(chan struct{}),
	}
	if id != nil {
		s.url = "https://" + net.JoinHostPort(host, port)
	}
	s.script.unserved = map[string]bool{}
	s.serveLocked(listener)
	return s, nil
}

// URL is the server's address, with the host as Start was given it.
func (s *Server) URL() string { return s.url }

// CA is the certificate that clients must trust, in PEM; nil for plain HTTP.
func (s *Server) CA() []byte {
	if s.tls == nil {
		return nil
	}
	return s.tls.pem
}

// Close ends all connections and waits for their handlers.
func (s *Server) Close() { s.Refuse() }

// Refuse closes the port and all connections, as a server that is down. Objects stay.
func (s *Server) Refuse() {
	s.mu.Lock()
	server, serving := s.http, s.serving
	s.http = nil
	s.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close() // only the listener's close can fail, and the port is gone then too
	<-serving
	s.handlers.Wait()
}

// Accept opens the port again after Refuse.
func (s *Server) Accept() error {
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("test API server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serveLocked(listener)
	return nil
}

func (s *Server) serveLocked(listener net.Listener) {
	server := &http.Server{
		Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0),
	} // clients that break off are no news
	serving := make(chan struct{})
	s.http, s.serving = server, serving
	go func() {
		defer close(serving)
		// Both always return http.ErrServerClosed.
		if s.tls == nil {
			_ = server.Serve(listener)
		} else {
			server.TLSConfig = &tls.Config{
				Certificates: []tls.Certificate{s.tls.pair}, MinVersion: tls.VersionTLS12,
				ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: s.tls.clients(),
			}
			_ = server.ServeTLS(listener, "", "")
		}
	}()
}

// SetLatency delays every answer from now on.
func (s *Server) SetLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.latency = d
}

// RequireToken answers 401 to requests that do not bear the token; "" demands none.
func (s *Server) RequireToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.token = token
}

// RequireUser answers 401 to requests without a client's certificate of this common
// name (Certificate); "" demands none.
func (s *Server) RequireUser(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.user = name
}

// Certificate makes a client's certificate, with its key, in PEM. The server must be one
// of StartTLS.
func (s *Server) Certificate(name string) ([]byte, error) { return s.tls.issue(name) }

// Fail adds a failure. Where several match, the first added one counts.
func (s *Server) Fail(f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.failures = append(s.script.failures, &f)
}

// ServeNADs tells whether the NetworkAttachmentDefinition CRD is installed; it is, at
// the start.
func (s *Server) ServeNADs(served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.unserved[nads.resource] = !served
}

// ServeStreams tells whether watches may begin with the list (sendInitialEvents, on by
// default from Kubernetes 1.34); they may, at the start.
func (s *Server) ServeStreams(served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.noStreams = !served
}

// CutWatches ends all watches that stand; clients may come back at once.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Forget drops the history of changes: a watch that resumes from an older resource
// version is told 410, as after etcd's compaction.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.history, s.store.forgotten = nil, s.store.version
}

// Requests are those that arrived since the start, or since ResetRequests.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ResetRequests forgets the requests.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Kubeconfig writes a kubeconfig for the server into dir and returns its path. Where a
// token is demanded, the file refers to dir/token, and that file is written too; where
// a certificate is, to dir/client.pem.
func (s *Server) Kubeconfig(dir string) (string, error) {
	s.mu.Lock()
	token, name := s.script.token, s.script.user
	s.mu.Unlock()
	user, cluster := map[string]any{}, map[string]any{"server": s.url}
	if s.tls != nil {
		cluster["certificate-authority-data"] = s.tls.pem
	}
	if token != "" {
		file := filepath.Join(dir, "token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			return "", err
		}
		user["tokenFile"] = file
	}
	if name != "" {
		file := filepath.Join(dir, "client.pem")
		pem, err := s.Certificate(name)
		if err := errors.Join(err, os.WriteFile(file, pem, 0o600)); err != nil {
			return "", err
		}
		user["client-certificate"], user["client-key"] = file, file
	}
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []any{map[string]any{"name": "test", "cluster": cluster}},
		"users":           []any{map[string]any{"name": "test", "user": user}},
		"contexts":        []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
		"current-context": "test",
	}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, text, 0o600)
}

// arrive remembers the request and does what the script says of it: it returns the
// status of a failure, or 0 to go on.
func (s *Server) arrive(ctx context.Context, r Request) int {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	latency, token, user := s.script.latency, s.script.token, s.script.user
	failure := s.script.match(r)
	s.mu.Unlock()

	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return http.StatusGatewayTimeout
	}
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token || user != "" && r.User != user {
		return http.StatusUnauthorized
	}
	if failure == nil {
		return 0
	}
	if failure.Do != nil {
		failure.Do()
	}
	return failure.Code
}

// match takes one use of the first failure that fits.
func (s *script) match(r Request) *Failure {
	for _, f := range s.failures {
		if f.Times > 0 && (f.Method == "" || f.Method == r.Method) && strings.Contains(r.Path, f.Path) &&
			(!f.Watch || r.Query.Get("watch") != "") {
			f.Times--
			return f
		}
	}
	return nil
}
