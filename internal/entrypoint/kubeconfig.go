package entrypoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/multus-thick/multus/internal/kubefile"
)

// Cluster is where the API server is, and the folder of the pod's service account.
type Cluster struct {
	// Protocol, Host and Port are KUBERNETES_SERVICE_PROTOCOL, _HOST and _PORT.
	Protocol, Host, Port string
	ServiceAccount       string
}

const (
	// ServiceAccount is where the kubelet mounts a pod's service account.
	ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

	kubeconfigFolder = "multus.d" // in --cni-conf-dir
	kubeconfigFile   = "multus.kubeconfig"
)

// kubeconfig keeps the plugin's kubeconfig, which holds the token itself: the plugin
// runs on the host, where the pod's service account has no path.
type kubeconfig struct {
	cluster       Cluster
	skipTLSVerify bool
	path          string
	log           *slog.Logger
}

// possible tells whether the pod has a service account. Without one the plugin's
// kubeconfig is somebody else's affair.
func (k *kubeconfig) possible() bool {
	_, err := os.Stat(k.token())
	if errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the pod has no service account, so no kubeconfig is written for the plugin", "missing", k.token())
		return false
	}
	return true
}

func (k *kubeconfig) token() string { return filepath.Join(k.cluster.ServiceAccount, "token") }

// file writes and keeps it: the token changes every hour, the CA hardly ever.
func (k *kubeconfig) file() kubefile.File {
	return kubefile.File{Path: k.path, Content: k.content, Log: k.log}
}

func (k *kubeconfig) content() ([]byte, error) {
	token, err := os.ReadFile(k.token())
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	if len(bytes.TrimSpace(token)) == 0 {
		return nil, fmt.Errorf("service account: %s is empty", k.token())
	}
	if k.cluster.Host == "" || k.cluster.Port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: the plugin's kubeconfig needs the API server's address")
	}
	cluster := &clientcmdapi.Cluster{
		Server:                k.cluster.Protocol + "://" + net.JoinHostPort(strings.Trim(k.cluster.Host, "[]"), k.cluster.Port),
		InsecureSkipTLSVerify: k.skipTLSVerify,
	}
	if !k.skipTLSVerify {
		if cluster.CertificateAuthorityData, err = os.ReadFile(filepath.Join(k.cluster.ServiceAccount, "ca.crt")); err != nil {
			return nil, fmt.Errorf("service account: %w", err)
		}
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"local": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"multus": {Token: string(bytes.TrimSpace(token))}},
		Contexts:       map[string]*clientcmdapi.Context{"multus-context": {Cluster: "local", AuthInfo: "multus"}},
		CurrentContext: "multus-context",
	})
}
