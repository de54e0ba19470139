package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// nadPage is how many NetworkAttachmentDefinitions one answer holds, from API servers
// that cannot stream lists (before Kubernetes 1.34). All in one answer would double the
// daemon's memory while it is decoded.
const nadPage = 250

// Watch keeps the node's pods and all NetworkAttachmentDefinitions in memory, beside a
// Client for what is not there. It implements gather.Pods and gather.Networks.
type Watch struct {
	*Client
	log  *slog.Logger
	pods *table[*metav1.PartialObjectMetadata, gather.Pod]
	nads *table[*nad, plan.NAD]
	// podSource and nadSource read what the tables hold.
	podSource, nadSource *cache.ListWatch
	selector             fields.Selector // of pods
}

// Watch makes a Watch of the pods of a node, or of all pods where node is empty. It
// does nothing until Run.
func (c *Client) Watch(node string, log *slog.Logger) *Watch {
	w := &Watch{
		Client: c,
		log:    log,
		pods:   newTable("pods", log, podRow),
		nads:   newTable(nadResource, log, (*nad).row),
	}
	selector := fields.Everything()
	if node != "" {
		selector = fields.OneTermEqualSelector("spec.nodeName", node)
	}
	w.selector = selector
	w.podSource = w.pods.source(
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector.String()
			return c.pods.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector.String()
			return c.pods.Watch(ctx, o)
		})
	w.nadSource = w.nads.source(c.listNADs, c.watchNADs)
	return w
}

func (c *Client) listNADs(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // for version 0 API servers ignore the limit
	}
	list := &nadList{}
	return list, c.nads.Get().Resource(nadResource).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx).Into(list)
}

func (c *Client) watchNADs(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.nads.Get().Resource(nadResource).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Watch(ctx)
}

// Run watches until ctx ends, and returns when everything it started has ended. An API
// server that does not answer, refuses the credentials, or does not have the
// CustomResourceDefinition yet is asked again and again; Problem tells.
func (w *Watch) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.log.Handler()))
	pods := cache.NewReflectorWithOptions(w.podSource, &metav1.PartialObjectMetadata{}, w.pods, reflectorOptions(ctx, "pods"))
	nads := cache.NewReflectorWithOptions(w.nadSource, &nad{}, w.nads, reflectorOptions(ctx, nadResource))
	nads.WatchListPageSize = nadPage
	var both sync.WaitGroup
	both.Go(func() { w.pods.run(ctx, pods) })
	both.Go(func() { w.nads.run(ctx, nads) })
	both.Wait()
}

func reflectorOptions(ctx context.Context, name string) cache.ReflectorOptions {
	log := klog.FromContext(ctx)
	again := retry
	return cache.ReflectorOptions{Logger: &log, Name: name, TypeDescription: name, Backoff: &again}
}

// Follow has pod called for each pod that may have changed or gone, and network when
// some NetworkAttachmentDefinition may have. It is for once, before Run; neither may block.
func (w *Watch) Follow(pod func(namespace, name string), network func()) {
	w.pods.changed = pod
	w.nads.changed = func(string, string) { network() }
}

// Cached implements gather.Pods. The annotations must not be changed.
func (w *Watch) Cached(namespace, name string) (gather.Pod, bool) {
	return w.pods.get(namespace, name)
}

// Network implements gather.Networks: from memory, else by a live read. The
// annotations must not be changed.
func (w *Watch) Network(ctx context.Context, ref netspec.Ref) (plan.NAD, error) {
	if n, ok := w.nads.get(ref.Namespace, ref.Name); ok {
		return n, nil
	}
	return w.Client.Network(ctx, ref)
}

// Pods are the pods in memory, in no order. The annotations must not be changed.
func (w *Watch) Pods() []gather.Pod { return w.pods.all() }

// Synced tells whether both lists have been read once.
func (w *Watch) Synced() bool {
	return !w.pods.lastSync().IsZero() && !w.nads.lastSync().IsZero()
}

// LastSync is the last moment at which memory was known to follow the API: the present
// while both watches stand, the zero time before both lists have been read once.
func (w *Watch) LastSync() time.Time {
	pods, nads := w.pods.lastSync(), w.nads.lastSync()
	if pods.Before(nads) {
		return pods
	}
	return nads
}

// Problem says in one line why memory is not, or no longer, that of the API; "" where
// all is well.
func (w *Watch) Problem() string {
	if problem := errors.Join(w.pods.state(), w.nads.state()); problem != nil {
		return oneLine(problem)
	}
	return ""
}

// source makes the table's requests, under the request's time limit, and notes how
// they went.
func (t *table[O, T]) source(list cache.ListWithContextFunc, follow cache.WatchFuncWithContext) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			objects, err := list(limited, o)
			if err == nil {
				err = meta.EachListItem(objects, func(object runtime.Object) error {
					_, err := trim(object)
					return err
				})
			}
			t.note(ctx, explain("list", t.resource, err))
			return objects, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := follow(ctx, o)
			if err != nil && o.SendInitialEvents != nil {
				return nil, fallBack(err) // to a list, which is noted
			}
			t.note(ctx, explain("watch", t.resource, err))
			return stream, err
		},
	}
}

// fallBack hides from the reflector errors that would make it wait, deaf to its
// context, before it tries to stream the list again. It lists instead, fails for the
// same cause, and comes back to run, which waits better.
func fallBack(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New("cannot stream the list: " + err.Error())
	}
	return err
}

// trim drops what is not kept from an object that has just been decoded, so that lists
// in transit are small too.
func trim(object any) (any, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	m.SetManagedFields(nil)
	m.SetLabels(nil)
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	if _, bookmark := m.GetAnnotations()[metav1.InitialEventsAnnotationKey]; !bookmark {
		m.SetAnnotations(kept(m.GetAnnotations()))
	}
	return object, nil
}
