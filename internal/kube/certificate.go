package kube

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// refreshCertificate lets cfg read a certificate and its key, which are files, for each
// connection, and connect anew after a 401. They are often links that move, and may come
// late. Client-go's own handling wants them at the start, and notices a change within
// five minutes.
func refreshCertificate(cfg *rest.Config, cert, key string) error {
	trust, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	if trust == nil {
		trust = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trust.GetClientCertificate = (&certificate{cert: cert, key: key}).get
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	cfg.TLSClientConfig = rest.TLSClientConfig{}
	cfg.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: cfg.Proxy, DialContext: dialer.DialContext, TLSClientConfig: trust, TLSHandshakeTimeout: 10 * time.Second,
	})
	cfg.Wrap(func(t http.RoundTripper) http.RoundTripper { return &reconnecting{t, dialer} })
	return nil
}

// certificate is a client's certificate and its key, in files.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	last *tls.Certificate // that could be read
}

// get reads the files. Where they are missing or damaged, as in the middle of a renewal,
// the last certificate may still be good.
func (c *certificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = &pair
	}
	if c.last == nil {
		return nil, err
	}
	return c.last, nil
}

// reconnecting drops all connections after a 401: a connection keeps the certificate
// that it began with.
type reconnecting struct {
	http.RoundTripper
	dialer *connrotation.Dialer
}

// RoundTrip is http.RoundTripper's.
func (r *reconnecting) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(req)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		answer.Body = &lastBody{answer.Body, r.dialer}
	}
	return answer, err
}

// WrappedRoundTripper lets the idle connections below be found.
func (r *reconnecting) WrappedRoundTripper() http.RoundTripper { return r.RoundTripper }

// lastBody is the body of the last answer on a connection.
type lastBody struct {
	io.ReadCloser
	dialer *connrotation.Dialer
}

// Close is io.Closer's.
func (b *lastBody) Close() error {
	defer b.dialer.CloseAll()
	return b.ReadCloser.Close()
}
