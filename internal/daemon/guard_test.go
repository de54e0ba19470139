package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/testkit/check"
)

// gatekeeper knows two tokens, and remembers what it was asked.
type gatekeeper struct {
	mu    sync.Mutex
	away  bool
	asked []string
}

func (g *gatekeeper) Review(_ context.Context, token, verb, path string) (known, allowed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, token+" "+verb+" "+path)
	if g.away {
		return false, false, errors.New("the API is away")
	}
	return token == "good" || token == "known", token == "good", nil
}

// TestI4_MetricsGuard: who may read, how long that counts, and what a stranger can cost.
func TestI4_MetricsGuard(t *testing.T) {
	c, keeper, now := check.T{T: t}, &gatekeeper{}, time.Unix(0, 0)
	var log bytes.Buffer
	g, err := newGuard(&config.Config{MetricsTokenReview: true, MetricsTLS: config.MetricsTLS{CertFile: "c", KeyFile: "k"}}, keeper, slog.New(slog.NewTextHandler(&log, nil)))
	c.Must(err)
	g.now = func() time.Time { return now }
	g.limit.SetLimit(0) // the burst is all there is: ten
	ask := func(method, path, authorization string) string {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		g.protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })).ServeHTTP(w, r)
		return strings.TrimSpace(fmt.Sprint(w.Code, w.Header().Get("WWW-Authenticate"), " ", w.Body.String()))
	}
	const none, no, yes, later = "401Bearer Unauthorized", "403 Forbidden", "200 metrics", "503 Service Unavailable"
	get := func(authorization string) string { return ask(http.MethodGet, "/metrics", authorization) }
	c.Same("answers", []string{none, none, none, none, none, no, yes, yes, yes, yes},
		[]string{get(""), get("Basic good"), get("Bearer "), get("good"), get("Bearer bad"), get("Bearer known"), get("Bearer good"), get("bearer  good"), get("Bearer good"), ask(http.MethodPost, "/metrics", "Bearer good")})
	c.Same("asked", []string{"bad get /metrics", "known get /metrics", "good get /metrics", "good post /metrics"}, keeper.asked)

	keeper.asked = nil
	now = now.Add(refusedFor) // what is refused may be allowed meanwhile, and is asked for again
	c.Same("after a while", []string{no, yes}, []string{get("Bearer known"), get("Bearer good")})
	now = now.Add(allowedFor) // and the other way round
	keeper.away = true
	c.Same("the API is away", later, get("Bearer good"))
	keeper.away = false
	c.Same("it is back", yes, get("Bearer good"))
	c.Same("asked", []string{"known get /metrics", "good get /metrics", "good get /metrics"}, keeper.asked)
	c.Same("no token is logged", false, strings.Contains(log.String(), "good"))

	for i := range 3 { // the last of ten
		c.Same("a stranger", none, get(fmt.Sprint("Bearer x", i)))
	}
	keeper.asked = nil
	c.Same("a stranger who insists", later, get("Bearer y"))
	c.Same("does not get through to the API", []string(nil), keeper.asked)
	c.Same("and stands in nobody's way", yes, get("Bearer good"))
	for i := range 2*mostVerdicts + 10 {
		g.keep([32]byte{byte(i), byte(i >> 8)}, verdict{http.StatusUnauthorized, now.Add(refusedFor)})
	}
	if len(g.verdicts) > mostVerdicts {
		t.Errorf("%d verdicts are kept", len(g.verdicts))
	}
}

// TestI4_MetricsMistakes: each is one line when the daemon starts.
func TestI4_MetricsMistakes(t *testing.T) {
	c, dir := check.T{T: t}, t.TempDir()
	files := config.MetricsTLS{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key"}
	certificate(c, dir, "one")
	other, key := keyPair(c, "two")
	write(c, dir+"/other.crt", other)
	write(c, dir+"/broken.key", "no "+strings.ReplaceAll(key, "PRIVATE KEY", "SECRET"))
	for name, tt := range map[string]struct {
		keys map[string]any
		want string
	}{
		"no key":           {map[string]any{"metricsTLS": map[string]string{"certFile": files.CertFile}}, `key "metricsTLS": one file is named; right would be certFile and keyFile`},
		"no certificate":   {map[string]any{"metricsTLS": map[string]string{"keyFile": files.KeyFile}}, `key "metricsTLS": one file is named; right would be certFile and keyFile`},
		"no file":          {map[string]any{"metricsTLS": map[string]string{"certFile": dir + "/none", "keyFile": files.KeyFile}}, `key "metricsTLS": open ` + dir + `/none: no such file or directory`},
		"not a pair":       {map[string]any{"metricsTLS": map[string]string{"certFile": dir + "/other.crt", "keyFile": files.KeyFile}}, `key "metricsTLS": ` + dir + `/other.crt and ` + files.KeyFile + ` are no pair: tls: private key does not match public key`},
		"not a key":        {map[string]any{"metricsTLS": map[string]string{"certFile": files.CertFile, "keyFile": dir + "/broken.key"}}, `key "metricsTLS": ` + files.CertFile + ` and ` + dir + `/broken.key are no pair: tls: failed to find any PEM data in key input`},
		"tokens in clear":  {map[string]any{"metricsTokenReview": true}, `key "metricsTokenReview": tokens would cross the network in the clear; right would be metricsTLS beside it`},
		"nobody to review": {map[string]any{"metricsTokenReview": true, "metricsTLS": map[string]string{"certFile": files.CertFile, "keyFile": files.KeyFile}}, `key "metricsTokenReview": there is no API server to ask; right would be a cluster, or false`},
	} {
		tt.keys["cniDir"] = t.TempDir()
		text, err := json.Marshal(tt.keys)
		c.Must(err)
		cfg, _, err := config.Parse(text)
		c.Must(err)
		_, err = New(Options{Config: cfg, Cluster: newCluster(), Log: slog.New(slog.DiscardHandler)})
		c.Same(name, tt.want, fmt.Sprint(err))
	}
}

// TestI4_MetricsOverTLS: a daemon's metrics over TLS with a guard, its certificate swapped
// while it runs, and a start without the rule that reviews need.
func TestI4_MetricsOverTLS(t *testing.T) {
	var log lines
	keeper := &gatekeeper{away: true}
	c, dir := check.T{T: t}, t.TempDir()
	one := certificate(c, dir, "one")
	port, address := freePort(t)
	r := prepare(t, map[string]any{
		"metricsPort": port, "metricsAddress": "127.0.0.1", "metricsTokenReview": true,
		"metricsTLS": map[string]string{"certFile": dir + "/tls.crt", "keyFile": dir + "/tls.key"},
	}, func(o *Options) { o.Log, o.Reviewer = slog.New(slog.NewTextHandler(&log, nil)), keeper })
	r.start()
	r.Eventually("the start says what is missing", func() bool {
		return strings.Contains(log.String(), `level=ERROR msg="key \"metricsTokenReview\": nobody can read the metrics" error="the API is away"`)
	})
	keeper.mu.Lock()
	keeper.away = false
	keeper.mu.Unlock()

	get := func(path, token, roots string, most uint16) string {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(roots))
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "multus-metrics", MinVersion: tls.VersionTLS10, MaxVersion: most}} //nolint:gosec // the server is to refuse it
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		r.Must(err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		r.Must(err)
		return fmt.Sprint(resp.StatusCode, " ", strings.Contains(string(body), "multus_build_info"))
	}
	r.Same("answers", []string{"200 true", "403 false", "401 false", "200 false", "200 true"},
		[]string{get("/metrics", "good", one, 0), get("/metrics", "known", one, 0), get("/metrics", "", one, 0), get("/healthz", "", one, 0), get("/metrics", "good", one, tls.VersionTLS12)})
	r.Same("TLS 1.1", "remote error: tls: protocol version not supported", get("/metrics", "good", one, tls.VersionTLS11))

	two, key := keyPair(c, "two")
	write(c, dir+"/tls.crt", two)
	r.Same("half replaced", []string{"200 true", "200 true"}, []string{get("/metrics", "good", one, 0), get("/metrics", "good", one, 0)})
	write(c, dir+"/tls.key", key)
	r.Same("replaced", "200 true", get("/metrics", "good", two, 0))
	r.Same("the old one", "tls: failed to verify certificate: x509: certificate signed by unknown authority", strings.SplitN(get("/metrics", "good", one, 0), " (", 2)[0])
	r.Same("complaints of it", 1, strings.Count(log.String(), "keeps its certificate"))
}

// certificate writes a pair, and returns the certificate.
func certificate(c check.T, dir, name string) string {
	c.Helper()
	cert, key := keyPair(c, name)
	write(c, dir+"/tls.crt", cert)
	write(c, dir+"/tls.key", key)
	return cert
}

func write(c check.T, path, text string) {
	c.Helper()
	c.Must(os.WriteFile(path, []byte(text), 0o600))
}

func keyPair(c check.T, organization string) (cert, key string) {
	c.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.Must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"multus-metrics"}, IsCA: true, BasicConstraintsValid: true,
	}
	template.Subject.Organization = []string{organization}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	c.Must(err)
	secretDER, err := x509.MarshalPKCS8PrivateKey(secret)
	c.Must(err)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", secretDER)
}
