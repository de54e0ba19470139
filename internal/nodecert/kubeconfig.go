package nodecert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/multus-thick/multus/internal/kubefile"
)

// WriteKubeconfig writes a kubeconfig for the bootstrap's cluster whose user has the
// kept certificate. A file that is right already is left alone.
func (k *Keeper) WriteKubeconfig(path string) error { return k.file(path).Write() }

// KeepKubeconfig writes the kubeconfig again, until ctx ends, when the bootstrap's cluster
// is another (its address, its CA), or when another program has damaged the file.
func (k *Keeper) KeepKubeconfig(ctx context.Context, path string) { k.file(path).Keep(ctx) }

func (k *Keeper) file(path string) kubefile.File {
	return kubefile.File{Path: path, Content: k.kubeconfig, Log: k.Log}
}

func (k *Keeper) kubeconfig() ([]byte, error) {
	bootstrap, _, err := readKubeconfig(k.Bootstrap)
	if err != nil {
		return nil, err
	}
	const name = "multus"
	cluster := bootstrap.Clusters[bootstrap.Contexts[bootstrap.CurrentContext].Cluster].DeepCopy()
	if ca := cluster.CertificateAuthority; ca != "" && len(cluster.CertificateAuthorityData) == 0 {
		// The reader of the new file may not have the old one's neighbours.
		if cluster.CertificateAuthorityData, err = os.ReadFile(ca); err != nil {
			return nil, fmt.Errorf("bootstrap kubeconfig %s: %w", k.Bootstrap, err)
		}
	}
	cluster.CertificateAuthority, cluster.LocationOfOrigin = "", ""
	pair, err := filepath.Abs(k.store.current())
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificate: pair, ClientKey: pair}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// readKubeconfig reads a kubeconfig. Client-go's own helpers would fall back to the
// environment where the file is empty.
func readKubeconfig(path string) (*clientcmdapi.Config, *rest.Config, error) {
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	file, err := rules.Load()
	if err != nil {
		return nil, nil, fmt.Errorf("bootstrap kubeconfig %s: %w", path, err)
	}
	if current := file.Contexts[file.CurrentContext]; current == nil || file.Clusters[current.Cluster] == nil {
		return nil, nil, fmt.Errorf("bootstrap kubeconfig %s: current-context names no context with a cluster", path)
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("bootstrap kubeconfig %s: %w", path, err)
	}
	return file, cfg, nil
}
