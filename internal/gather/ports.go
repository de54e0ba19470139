package gather

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Errors of the ports. Adapters wrap them with %w and the cause.
var (
	// ErrNotFound says that the object does not exist, as a live read tells.
	ErrNotFound = errors.New("not found")
	// ErrNotYet says that the answer cannot be had now: a cache is not synced, the API
	// does not answer, a file is not there yet. The caller tries again later.
	ErrNotYet error = notYet{}
)

type notYet struct{}

func (notYet) Error() string { return "not available yet" }

// CNICode is CNI's "try again later".
func (notYet) CNICode() uint { return types.ErrTryAgainLater }

// Pod is what is known of a pod.
type Pod struct {
	plan.Subject
	// Static says that the kubelet read the pod from a file or URL (annotation
	// kubernetes.io/config.source other than "api"): the UID that the runtime names is
	// then that of the manifest, not the API object's.
	Static bool
	// Deleting says that the pod is being deleted.
	Deleting bool
}

// Pods finds pods.
type Pods interface {
	// Cached returns the pod from the watch's cache; ok is false where the cache does
	// not have it or there is no cache.
	Cached(namespace, name string) (Pod, bool)
	// Live reads the pod from the API, until ctx ends. Wraps ErrNotFound or ErrNotYet.
	Live(ctx context.Context, namespace, name string) (Pod, error)
}

// Networks finds NetworkAttachmentDefinitions.
type Networks interface {
	// Network returns the definition from the cache, and reads it from the API where
	// the cache does not have it. Wraps ErrNotFound or ErrNotYet.
	Network(ctx context.Context, ref netspec.Ref) (plan.NAD, error)
}

// Devices finds the devices that were allocated to a pod. The daemon has two sources of
// them: the kubelet, and the API for resource claims (DRA).
type Devices interface {
	// Devices returns them in an order that is the same on every call and respects
	// containers. A resource without devices is absent.
	Devices(ctx context.Context, pod plan.Pod) (plan.Devices, error)
}

// Files reads the node's configuration files, as the adapter's side of the mount sees them.
type Files interface {
	// ReadFile is os.ReadFile.
	ReadFile(path string) ([]byte, error)
	// ReadDir lists the names of the regular files and links in a folder, sorted.
	ReadDir(path string) ([]string, error)
	// IsDir tells whether path is a folder.
	IsDir(path string) bool
}
