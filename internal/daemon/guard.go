package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/multus-thick/multus/internal/config"
)

// Reviewer knows who has a token, and what they may do with a path: package kube's.
type Reviewer interface {
	Review(ctx context.Context, token, verb, path string) (known, allowed bool, err error)
}

// How long a verdict counts, how many are kept, and how many are asked for a second: a
// stranger with made-up tokens costs neither memory nor the API server's time.
const (
	allowedFor     = time.Minute
	refusedFor     = 10 * time.Second
	mostVerdicts   = 100
	reviewsASecond = 5
	reviewsBurst   = 10
)

// guard lets the callers of the metrics port through whose token is good for it.
type guard struct {
	reviewer Reviewer
	log      *slog.Logger
	limit    *rate.Limiter
	now      func() time.Time

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]verdict // by token and path: no token is kept
}

type verdict struct {
	status int
	until  time.Time
}

// newGuard is nil where everybody may read.
func newGuard(cfg *config.Config, reviewer Reviewer, log *slog.Logger) (*guard, error) {
	switch {
	case !cfg.MetricsTokenReview:
		return nil, nil
	case cfg.MetricsTLS == (config.MetricsTLS{}):
		return nil, errors.New("key \"metricsTokenReview\": tokens would cross the network in the clear; right would be metricsTLS beside it")
	case reviewer == nil:
		return nil, errors.New("key \"metricsTokenReview\": there is no API server to ask; right would be a cluster, or false")
	}
	return &guard{
		reviewer: reviewer, log: log, limit: rate.NewLimiter(reviewsASecond, reviewsBurst), now: time.Now,
		verdicts: map[[sha256.Size]byte]verdict{},
	}, nil
}

// protect guards a handler.
func (g *guard) protect(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		status := http.StatusUnauthorized
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
			status = g.judge(r.Context(), token, strings.ToLower(r.Method), r.URL.Path)
		}
		switch status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, http.StatusText(status), status)
	})
}

// judge gives the HTTP status for a caller: 200, 401, 403, or 503 where nobody can tell now.
func (g *guard) judge(ctx context.Context, token, verb, path string) int {
	key := sha256.Sum256([]byte(verb + " " + path + " " + token))
	g.mu.Lock()
	v, ok := g.verdicts[key]
	g.mu.Unlock()
	if ok && g.now().Before(v.until) {
		return v.status
	}
	if !g.limit.Allow() {
		return http.StatusServiceUnavailable
	}
	known, allowed, err := g.reviewer.Review(ctx, token, verb, path)
	v = verdict{http.StatusForbidden, g.now().Add(refusedFor)}
	switch {
	case err != nil:
		g.log.Warn("a caller of the metrics port cannot be judged", "error", err)
		return http.StatusServiceUnavailable
	case !known:
		v.status = http.StatusUnauthorized
	case allowed:
		v = verdict{http.StatusOK, g.now().Add(allowedFor)}
	}
	g.keep(key, v)
	return v.status
}

// keep makes room by what is over, and by everything where that is not enough: it can be
// asked again.
func (g *guard) keep(key [sha256.Size]byte, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verdicts) >= mostVerdicts {
		for k, old := range g.verdicts {
			if !g.now().Before(old.until) {
				delete(g.verdicts, k)
			}
		}
	}
	if len(g.verdicts) >= mostVerdicts {
		clear(g.verdicts)
	}
	g.verdicts[key] = v
}

// check tells at the start what would keep everybody out, such as a missing RBAC rule.
func (g *guard) check(ctx context.Context) {
	if _, _, err := g.reviewer.Review(ctx, "no token, asked whether it can be", "get", "/metrics"); err != nil && ctx.Err() == nil {
		g.log.Error("key \"metricsTokenReview\": nobody can read the metrics", "error", err)
	}
}

// pair is the metrics server's certificate, read again when its files change.
type pair struct {
	config.MetricsTLS
	log *slog.Logger

	mu          sync.Mutex
	cert, key   []byte // what current was made of
	current     *tls.Certificate
	complaining bool // the files are wrong, and the log says so
}

// newPair is nil where none is set.
func newPair(files config.MetricsTLS, log *slog.Logger) (*pair, error) {
	if files == (config.MetricsTLS{}) {
		return nil, nil
	}
	if files.CertFile == "" || files.KeyFile == "" {
		return nil, errors.New("key \"metricsTLS\": one file is named; right would be certFile and keyFile")
	}
	p := &pair{MetricsTLS: files, log: log}
	if err := p.read(); err != nil {
		return nil, fmt.Errorf("key \"metricsTLS\": %w", err)
	}
	return p, nil
}

// read takes the files as they are now. Reading them costs less than the handshake that
// asks, and needs no watching of links, which is what a mounted secret is made of.
func (p *pair) read() error {
	cert, err := os.ReadFile(p.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.KeyFile)
	if err != nil {
		return err
	}
	if p.current != nil && bytes.Equal(cert, p.cert) && bytes.Equal(key, p.key) {
		return nil
	}
	current, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s are no pair: %w", p.CertFile, p.KeyFile, err)
	}
	p.cert, p.key, p.current = cert, key, &current
	return nil
}

// get is tls.Config's GetCertificate. A pair that is half replaced leaves the one before.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.read()
	if err != nil && !p.complaining {
		p.log.Warn("the metrics server keeps its certificate, for the new one is wrong", "error", err)
	}
	p.complaining = err != nil
	return p.current, nil
}

// secure puts TLS over a listener. HTTP/2 is left out: one scraper has no use for it.
func (p *pair) secure(l net.Listener) net.Listener {
	if p == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get, NextProtos: []string{"http/1.1"}})
}
