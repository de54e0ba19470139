package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/oauth2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multus-thick/multus/internal/gather"
)

// serviceAccountDir is where the kubelet mounts a pod's service account.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Limits of the client, those of Multus v4 (contract 1.15).
const (
	queriesPerSecond = 50
	queriesBurst     = 50
	requestTimeout   = time.Minute // of everything but watches
)

// tokenPeriod is how long a token is used before its file is read again.
const tokenPeriod = time.Minute

// ErrNoCluster says that neither a kubeconfig nor a cluster's address was given.
var ErrNoCluster = errors.New("no kubeconfig is given and no Kubernetes service is known")

// Options say where the API server is and who asks.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Where it is empty, the client is
	// that of a pod in the cluster: Host and Port count, and ServiceAccount.
	Kubeconfig string
	// Host and Port are the values of KUBERNETES_SERVICE_HOST and _PORT.
	Host, Port string
	// ServiceAccount is the folder with token and ca.crt; empty for the kubelet's own.
	ServiceAccount string
	// UserAgent names the program, such as "multus-daemon/v5.0.0".
	UserAgent string
}

// Connect makes a client. It does not contact the server. It returns ErrNoCluster
// where the options name none, and an error that wraps gather.ErrNotYet where a file
// that they name is not there yet.
func Connect(o Options) (*Client, error) {
	cfg, err := restConfig(o)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("API client: %w: %w", gather.ErrNotYet, err)
		}
		return nil, fmt.Errorf("API client: %w", err)
	}
	c, err := newClient(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("API client for %s: %w: %w", cfg.Host, gather.ErrNotYet, err)
	}
	if err != nil {
		return nil, fmt.Errorf("API client for %s: %w", cfg.Host, err)
	}
	return c, nil
}

func newClient(cfg *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	pods, err := metadata.NewForConfigAndClient(cfg, shared)
	if err != nil {
		return nil, err
	}
	nads, err := rest.RESTClientForConfigAndClient(nadConfig(cfg), shared)
	if err != nil {
		return nil, err
	}
	return &Client{pods: pods.Resource(podResource), nads: nads, http: shared}, nil
}

// Close gives idle connections back.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// restConfig is client-go's configuration: no timeout, since it would end watches too.
func restConfig(o Options) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	switch {
	case o.Kubeconfig != "":
		cfg, err = kubeconfig(o.Kubeconfig)
	case o.Host != "" && o.Port != "":
		cfg, err = inCluster(o)
	default:
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = o.UserAgent
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(queriesPerSecond, queriesBurst)
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

// kubeconfig reads a kubeconfig file. Client-go's own helpers would fall back to the
// environment where the file is empty.
func kubeconfig(path string) (*rest.Config, error) {
	cfg, err := parseKubeconfig(path)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.BearerTokenFile != "":
		refreshToken(cfg, tokenFile(cfg.BearerTokenFile))
	case cfg.BearerToken != "":
		refreshToken(cfg, func() (string, error) {
			again, err := parseKubeconfig(path)
			if err != nil {
				return "", err
			}
			return again.BearerToken, nil
		})
	}
	return cfg, nil
}

func parseKubeconfig(path string) (*rest.Config, error) {
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	file, err := rules.Load() // also resolves the paths in it
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cert, key := certificateFiles(file)
	cfg, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err == nil && cert != "" {
		err = refreshCertificate(cfg, cert, key)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// certificateFiles takes the files of the client's certificate and key out of a
// kubeconfig, for client-go wants them to be there already. It takes both or none: data
// goes before files, and what is incomplete is for client-go to refuse.
func certificateFiles(file *clientcmdapi.Config) (cert, key string) {
	current := file.Contexts[file.CurrentContext]
	if current == nil || file.AuthInfos[current.AuthInfo] == nil {
		return "", ""
	}
	user := file.AuthInfos[current.AuthInfo]
	if len(user.ClientCertificateData) > 0 || len(user.ClientKeyData) > 0 || user.ClientCertificate == "" || user.ClientKey == "" {
		return "", ""
	}
	cert, key = user.ClientCertificate, user.ClientKey
	user.ClientCertificate, user.ClientKey = "", ""
	return cert, key
}

func inCluster(o Options) (*rest.Config, error) {
	dir := o.ServiceAccount
	if dir == "" {
		dir = serviceAccountDir
	}
	cfg := &rest.Config{
		Host:            "https://" + net.JoinHostPort(o.Host, o.Port),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}
	token := tokenFile(filepath.Join(dir, "token"))
	if _, err := token(); err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	refreshToken(cfg, token)
	return cfg, nil
}

// tokenSource reads a token from where it is kept.
type tokenSource func() (string, error)

// Token implements oauth2.TokenSource.
func (read tokenSource) Token() (*oauth2.Token, error) {
	token, err := read()
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: token, Expiry: time.Now().Add(tokenPeriod)}, nil
}

func tokenFile(path string) tokenSource {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("token file %s is empty", path)
		}
		return token, nil
	}
}

// refreshToken lets cfg take its token from a source, anew after a 401: client-go's own
// handling of token files would use a token that was refused for the rest of a minute.
func refreshToken(cfg *rest.Config, source tokenSource) {
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(source)))
}
