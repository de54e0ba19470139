package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/daemon"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/manifest"
	"github.com/multus-thick/multus/internal/nodecert"
)

// connect finds what the daemon learns of pods and networks from: a folder of YAML,
// where kubeconfig names one, or the API server of a kubeconfig, or of the cluster it
// runs in; with perNodeCertificate, that of the bootstrap kubeconfig. Where a folder
// stands for the API, the client is nil: it has no claims and judges nobody.
func connect(cfg *config.Config, log *slog.Logger) (daemon.Cluster, *kube.Client, error) {
	if manifest.IsFolder(cfg.Kubeconfig) {
		folder, warnings, err := manifest.Load(cfg.Kubeconfig)
		if err != nil {
			return nil, nil, err
		}
		for _, w := range warnings {
			log.Warn(string(w))
		}
		return folder, nil, nil
	}
	node := os.Getenv("MULTUS_NODE_NAME")
	access := cfg.Kubeconfig
	var keeper *nodecert.Keeper
	if cfg.PerNodeCertificate.Enabled {
		var err error
		if keeper, access, err = certify(cfg.PerNodeCertificate, node, log); err != nil {
			return nil, nil, fmt.Errorf("key \"perNodeCertificate\": %w", err)
		}
	}
	client, err := kube.Connect(kube.Options{
		Kubeconfig: access, UserAgent: "multus-daemon",
		Host: os.Getenv("KUBERNETES_SERVICE_HOST"), Port: os.Getenv("KUBERNETES_SERVICE_PORT"),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the daemon needs the Kubernetes API: %w", err)
	}
	if node == "" {
		log.Warn("MULTUS_NODE_NAME is not set: all pods of the cluster are watched, not this node's alone")
	}
	if keeper != nil {
		return &certified{client.Node(node, log), keeper, access}, client, nil
	}
	return client.Node(node, log), client, nil
}

// certify prepares the node's client certificate, and returns the kubeconfig that names it.
func certify(cfg config.PerNodeCertificate, node string, log *slog.Logger) (*nodecert.Keeper, string, error) {
	keeper, err := nodecert.New(nodecert.Options{
		Node: node, Bootstrap: cfg.BootstrapKubeconfig, Dir: cfg.CertDir, Duration: cfg.CertDuration, Log: log,
	})
	if err != nil {
		return nil, "", err
	}
	access := filepath.Join(cfg.CertDir, "kubeconfig")
	return keeper, access, keeper.WriteKubeconfig(access)
}

// certified is a cluster that is asked with the node's client certificate.
type certified struct {
	daemon.Cluster
	keeper     *nodecert.Keeper
	kubeconfig string // beside the certificate
}

// Run is daemon.Cluster's.
func (c *certified) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	keeping.Go(func() { c.keeper.Run(ctx) })
	keeping.Go(func() { c.keeper.KeepKubeconfig(ctx, c.kubeconfig) })
	defer keeping.Wait()
	return c.Cluster.Run(ctx)
}

// Problem is daemon.Cluster's. What is wrong with the certificate is the cause of all else.
func (c *certified) Problem() string {
	if err := c.keeper.Problem(); err != nil {
		return err.Error()
	}
	return c.Cluster.Problem()
}
