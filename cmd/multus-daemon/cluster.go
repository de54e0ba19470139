package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/daemon"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/manifest"
)

// connect finds what the daemon learns of pods and networks from: a folder of YAML,
// where kubeconfig names one, or the API server of a kubeconfig, or of the cluster it
// runs in.
func connect(cfg *config.Config, log *slog.Logger) (daemon.Cluster, error) {
	if manifest.IsFolder(cfg.Kubeconfig) {
		folder, warnings, err := manifest.Load(cfg.Kubeconfig)
		if err != nil {
			return nil, err
		}
		for _, w := range warnings {
			log.Warn(string(w))
		}
		return folder, nil
	}
	client, err := kube.Connect(kube.Options{
		Kubeconfig: cfg.Kubeconfig, UserAgent: "multus-daemon",
		Host: os.Getenv("KUBERNETES_SERVICE_HOST"), Port: os.Getenv("KUBERNETES_SERVICE_PORT"),
	})
	if err != nil {
		return nil, fmt.Errorf("the daemon needs the Kubernetes API: %w", err)
	}
	node := os.Getenv("MULTUS_NODE_NAME")
	if node == "" {
		log.Warn("MULTUS_NODE_NAME is not set: all pods of the cluster are watched, not this node's alone")
	}
	return client.Node(node, log), nil
}
