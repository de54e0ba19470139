package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/internal/plan"
)

// ConditionNetworks is the pod condition that is False while a running pod lacks
// networks that it selects, or still has others. A pod that never did has none.
const ConditionNetworks corev1.PodConditionType = "multus-cni.io/NetworksAttached"

// Reasons of ConditionNetworks.
const (
	reasonDiffers  = "NetworksDiffer"
	reasonAttached = "NetworksAttached"
)

// ReportNetworks says in the pod's status in what its networks differ from those that
// it selects; nothing where they do not. A condition that says so already costs a read
// and no write. Of a pod with another UID the error is ErrPodGone.
func (c *Client) ReportNetworks(ctx context.Context, pod plan.Pod, differs string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := []string{"/api/v1/namespaces", pod.Namespace, "pods", pod.Name}
	raw, err := c.nads.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("pod %s: %w", pod, ErrPodGone)
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", pod, explain("get", "pods", err))
	}
	var now struct {
		Metadata struct{ UID string }
		Status   struct{ Conditions []corev1.PodCondition }
	}
	if err := json.Unmarshal(raw, &now); err != nil {
		return fmt.Errorf("pod %s: %w", pod, err)
	}
	if now.Metadata.UID != pod.UID {
		return fmt.Errorf("pod %s: %w", pod, ErrPodGone)
	}
	want, changes := conditionOf(now.Status.Conditions, differs)
	if !changes {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{want}},
	})
	if err != nil {
		return err
	}
	err = c.nads.Patch(types.StrategicMergePatchType).AbsPath(append(path, "status")...).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("condition %s of pod %s: %w", ConditionNetworks, pod, explain("patch", "pods/status", err))
	}
	return nil
}

// conditionOf is what the condition becomes, and whether it changes.
func conditionOf(all []corev1.PodCondition, differs string) (want corev1.PodCondition, changes bool) {
	want = corev1.PodCondition{Type: ConditionNetworks, Status: corev1.ConditionTrue, Reason: reasonAttached, LastTransitionTime: metav1.Now()}
	if differs != "" {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, reasonDiffers, differs
	}
	i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == ConditionNetworks })
	if i < 0 {
		return want, differs != ""
	}
	if all[i].Status == want.Status {
		want.LastTransitionTime = all[i].LastTransitionTime
	}
	return want, all[i].Status != want.Status || all[i].Message != want.Message
}
