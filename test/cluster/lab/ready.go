package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// readyLimit is many times what it takes on a busy machine.
const readyLimit = 2 * time.Minute

// Client is the cluster's administrator.
func (c *Cluster) Client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1 // it is ours alone
	return kubernetes.NewForConfig(config)
}

// waitUp waits until pods can be made, and tells of the stages.
func (c *Cluster) waitUp(ctx context.Context, begin time.Time) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	err = poll(ctx, readyLimit, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	c.stage(begin, "API server ready")
	err = poll(ctx, readyLimit, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("the first ServiceAccount: %w", err)
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	c.stage(begin, "nodes Ready")
	return nil
}

// WaitReady waits until the API server answers and every node that runs is Ready, by
// word of a kubelet of its present boot.
func (c *Cluster) WaitReady(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if !node.Running() {
			continue
		}
		booted, err := os.Stat(filepath.Join(node.folder(), specFile))
		if err != nil {
			return fmt.Errorf("%s: %w", node.Name, err)
		}
		err = poll(ctx, readyLimit, func(ctx context.Context) error {
			object, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return readySince(object, booted.ModTime())
		})
		if err != nil {
			return fmt.Errorf("%s is not Ready: %w", node.Name, err)
		}
	}
	return nil
}

// readySince says why the node is not, or was so before its boot.
func readySince(node *corev1.Node, boot time.Time) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s: %s", condition.Reason, condition.Message)
		}
		if !condition.LastHeartbeatTime.After(boot) { // whose seconds are whole
			return fmt.Errorf("its last word is of %v", condition.LastHeartbeatTime)
		}
		return nil
	}
	return fmt.Errorf("it has not said so yet")
}
