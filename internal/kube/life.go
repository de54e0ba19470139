package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// podPage is how many pods one answer holds.
const podPage = 500

// LivePods are the node's pods as the API has them now.
func (w *Watch) LivePods(ctx context.Context) ([]gather.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := metav1.ListOptions{FieldSelector: w.selector.String(), Limit: podPage}
	var all []gather.Pod
	for {
		list, err := w.Client.pods.List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("the node's pods: %w", explain("list", "pods", err))
		}
		for i := range list.Items {
			all = append(all, podRow(&list.Items[i]))
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// Life reads how a pod runs. Wraps gather.ErrNotFound where it does not exist, or another
// has its name.
func (c *Client) Life(ctx context.Context, pod plan.Pod) (audit.Life, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := c.nads.Get().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return audit.Life{}, fmt.Errorf("pod %s: %w", pod, gather.ErrNotFound)
	case err != nil:
		return audit.Life{}, fmt.Errorf("pod %s: %w: %w", pod, gather.ErrNotYet, explain("get", "pods", err))
	}
	var now struct {
		Metadata struct {
			UID             string
			OwnerReferences []metav1.OwnerReference
		}
		Spec   struct{ HostNetwork bool }
		Status struct {
			Phase      corev1.PodPhase
			PodIPs     []corev1.PodIP
			Conditions []corev1.PodCondition
		}
	}
	if err := json.Unmarshal(raw, &now); err != nil {
		return audit.Life{}, fmt.Errorf("pod %s: %w", pod, err)
	}
	if now.Metadata.UID != pod.UID {
		return audit.Life{}, fmt.Errorf("pod %s with UID %s: %w", pod, pod.UID, gather.ErrNotFound)
	}
	life := audit.Life{Controlled: metav1.GetControllerOf(&metav1.ObjectMeta{OwnerReferences: now.Metadata.OwnerReferences}) != nil}
	for _, ip := range now.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			life.IPs = append(life.IPs, a)
		}
	}
	switch {
	case now.Spec.HostNetwork || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed:
		life.Phase = audit.Exempt
	case now.Status.Phase == corev1.PodRunning && !lacksSandbox(now.Status.Conditions):
		life.Phase = audit.Running
	}
	return life, nil
}

// lacksSandbox tells that the kubelet says so; older kubelets say nothing.
func lacksSandbox(conditions []corev1.PodCondition) bool {
	for _, c := range conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// Evict asks the API to end a pod as a node's drain does, so that disruption budgets count.
func (c *Client) Evict(ctx context.Context, pod plan.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := types.UID(pod.UID)
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil {
		return err
	}
	err = c.nads.Post().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "eviction").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evicting pod %s: %w", pod, explain("create", "pods/eviction", err))
	}
	return nil
}
