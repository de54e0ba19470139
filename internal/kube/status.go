package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// fieldManager owns the annotation in the pod's managed fields.
const fieldManager = "multus"

// ErrPodGone says that the pod does not exist, or that another has taken its name.
var ErrPodGone = errors.New("the pod is gone")

// PatchStatus sets the pod's network-status annotation to text and changes nothing
// else. pod.UID is that of the API's object (for a static pod not the runtime's): a pod
// of the same name with another UID is left alone, and ErrPodGone returned. With an
// empty UID any pod of the name will do.
//
// It tries again, with growing pauses, until ctx ends; the error then wraps
// gather.ErrNotYet and the last cause. An answer that no repetition can mend, such as
// a missing RBAC rule, ends it at once. Where patching is forbidden and updating is
// not, as under the ClusterRole that comes with Multus v4, it updates.
func (c *Client) PatchStatus(ctx context.Context, pod plan.Pod, text string) error {
	patch, err := statusPatch(pod, text)
	if err != nil {
		return fmt.Errorf("network-status of pod %s: %w", pod, err)
	}
	pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 5 * time.Second}
	for {
		err := c.writeOnce(ctx, pod, text, patch)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrPodGone) || isFinal(err) {
			return fmt.Errorf("network-status of pod %s: %w", pod, explain("patch", "pods/status", err))
		}
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
			return fmt.Errorf("network-status of pod %s: %w: %w", pod, gather.ErrNotYet, explain("patch", "pods/status", err))
		}
	}
}

// statusPatch is a JSON merge patch (RFC 7386). A UID in it is a precondition to the
// API server.
func statusPatch(pod plan.Pod, text string) ([]byte, error) {
	type meta struct {
		UID         string            `json:"uid,omitempty"`
		Annotations map[string]string `json:"annotations"`
	}
	return json.Marshal(map[string]meta{
		"metadata": {pod.UID, map[string]string{netspec.AnnotationStatus: text}},
	})
}

func (c *Client) writeOnce(ctx context.Context, pod plan.Pod, text string, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods := c.pods.Namespace(pod.Namespace)
	_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsForbidden(err) {
		err = c.updateOnce(ctx, pod, text)
	}
	switch {
	case apierrors.IsNotFound(err) && !unserved(err):
		return fmt.Errorf("%w: %w", ErrPodGone, err)
	case pod.UID == "" || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err):
		return err
	}
	// A conflict is another writer or another pod; API servers say the latter as an
	// invalid change of the UID, too. Only a look can tell.
	now, lookErr := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case lookErr == nil && string(now.UID) != pod.UID:
		return fmt.Errorf("%w: the API has UID %s, not %s: %w", ErrPodGone, now.UID, pod.UID, err)
	case apierrors.IsNotFound(lookErr) && !unserved(lookErr):
		return fmt.Errorf("%w: %w", ErrPodGone, err)
	}
	return err
}

// updateOnce sends the whole pod back with the annotation, under its UID and version as
// preconditions.
func (c *Client) updateOnce(ctx context.Context, pod plan.Pod, text string) error {
	path := []string{"/api/v1/namespaces", pod.Namespace, "pods", pod.Name}
	raw, err := c.nads.Get().AbsPath(path...).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var whole unstructured.Unstructured
	if err := whole.UnmarshalJSON(raw); err != nil {
		return err
	}
	annotations := whole.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[netspec.AnnotationStatus] = text
	whole.SetAnnotations(annotations)
	if pod.UID != "" {
		whole.SetUID(types.UID(pod.UID))
	}
	return c.nads.Put().AbsPath(append(path, "status")...).Param("fieldManager", fieldManager).Body(&whole).Do(ctx).Error()
}

// isFinal tells the refusals that stay: client errors except those that speak of the
// moment.
func isFinal(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
