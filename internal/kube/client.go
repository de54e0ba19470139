package kube

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// annotationConfigHash on a static pod is the UID by which the runtime knows it.
const annotationConfigHash = "kubernetes.io/config.hash"

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// Client reads and writes through the API. It implements gather.Pods, without a cache,
// and gather.Networks.
type Client struct {
	pods metadata.Getter
	nads *rest.RESTClient // also carries events, whose bodies are plain JSON
	http *http.Client
}

// Cached implements gather.Pods: there is no cache.
func (c *Client) Cached(string, string) (gather.Pod, bool) { return gather.Pod{}, false }

// Live implements gather.Pods. It reads metadata only, so Claims is false.
func (c *Client) Live(ctx context.Context, namespace, name string) (gather.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.pods.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return gather.Pod{}, fmt.Errorf("pod %s/%s: %w", namespace, name, readError("pods", err))
	}
	return podRow(m), nil
}

// Network implements gather.Networks.
func (c *Client) Network(ctx context.Context, ref netspec.Ref) (plan.NAD, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var n nad
	err := c.nads.Get().Namespace(ref.Namespace).Resource(nadResource).Name(ref.Name).Do(ctx).Into(&n)
	if err != nil {
		return plan.NAD{}, fmt.Errorf("NetworkAttachmentDefinition %s: %w", ref, readError(nadResource, err))
	}
	return n.row(), nil
}

// ErrNotFound says that the API has no such object.
var ErrNotFound = gather.ErrNotFound

// Raw is the API's answer to a GET of a path such as /apis/apps/v1/daemonsets.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.nads.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, readError("this path", err))
	}
	return body, nil
}

// podRow is what is kept of a pod.
func podRow(m *metav1.PartialObjectMetadata) gather.Pod {
	source := m.Annotations[netspec.AnnotationConfigSource]
	return gather.Pod{
		Subject: plan.Subject{
			Pod:         plan.Pod{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)},
			Annotations: kept(m.Annotations),
		},
		Static:   source != "" && source != "api",
		Deleting: m.DeletionTimestamp != nil,
	}
}

// kept are the annotations that matter, of pods and of NetworkAttachmentDefinitions;
// nil for none. The one of kubectl apply, above all, repeats the whole object.
func kept(annotations map[string]string) map[string]string {
	var result map[string]string
	for _, key := range []string{
		netspec.AnnotationNetworks, netspec.AnnotationStatus, netspec.AnnotationDefaultNetwork,
		netspec.AnnotationConfigSource, annotationConfigHash, netspec.AnnotationResourceName,
	} {
		if value, ok := annotations[key]; ok {
			if result == nil {
				result = map[string]string{}
			}
			result[key] = value
		}
	}
	return result
}

// readError is a failed read as the ports name it: only an API server that serves the
// resource can say that an object does not exist. All else may pass.
func readError(resource string, err error) error {
	if apierrors.IsNotFound(err) && !unserved(err) {
		return gather.ErrNotFound // the server's words add nothing
	}
	return fmt.Errorf("%w: %w", gather.ErrNotYet, explain("get", resource, err))
}

// explain adds to an error of the API what would be right, where that is known.
func explain(verb, resource string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("RBAC must grant the verb %s on %s: %w", verb, resource, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the token or certificate: %w", err)
	case unserved(err) && resource == nadResource:
		return fmt.Errorf("the CustomResourceDefinition %s.%s must be installed: %w", nadResource, nadVersion.Group, err)
	}
	return err
}

// unserved tells a 404 for the resource from one for the object: it does not come from
// the resource's own code and so is no Status.
func unserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
