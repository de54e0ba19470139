package approver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/multus-thick/multus/internal/nodecert"
)

const (
	tries  = 5 // of one request, before the next resync
	resync = 10 * time.Minute
	source = "cert-approver"

	requestTimeout = time.Minute
)

// Approver decides about requests as they come.
type Approver struct {
	client *rest.RESTClient
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[string]
}

// New makes an Approver. It does not contact the server.
func New(cfg *rest.Config, log *slog.Logger) (*Approver, error) {
	client, err := nodecert.RESTClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("API client for %s: %w", cfg.Host, err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	return &Approver{client: client, log: log, queue: queue}, nil
}

// Run decides until ctx ends. An API server that is away is waited for.
func (a *Approver) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(a.log.Handler()))
	signer := fields.OneTermEqualSelector("spec.signerName", nodecert.Signer)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(a.client, nodecert.Resource, "", signer),
		ObjectType:    &certificatesv1.CertificateSigningRequest{},
		ResyncPeriod:  resync,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    a.add,
			UpdateFunc: func(_, is any) { a.add(is) },
		},
	})
	defer a.client.Client.CloseIdleConnections()
	defer context.AfterFunc(ctx, a.queue.ShutDown)()
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	for a.next(ctx) {
	}
	<-done
}

func (a *Approver) add(object any) {
	if request := object.(*certificatesv1.CertificateSigningRequest); Ours(request) {
		a.queue.Add(request.Name)
	}
}

// next decides about one request; false at the end.
func (a *Approver) next(ctx context.Context) bool {
	name, end := a.queue.Get()
	if end {
		return false
	}
	defer a.queue.Done(name)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return a.decide(ctx, name) })
	switch {
	case err == nil:
		a.queue.Forget(name)
	case ctx.Err() != nil:
	case a.queue.NumRequeues(name) < tries:
		a.log.Warn("no decision yet", "request", name, "error", err)
		a.queue.AddRateLimited(name)
	default:
		a.log.Error("no decision", "request", name, "tries", tries, "again within", resync.String(), "error", err)
		a.queue.Forget(name)
	}
	return true
}

// decide reads the request anew, so that nobody's decision is repeated, and writes what
// Judge says.
func (a *Approver) decide(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var request certificatesv1.CertificateSigningRequest
	err := a.client.Get().Resource(nodecert.Resource).Name(name).Do(ctx).Into(&request)
	if apierrors.IsNotFound(err) || err == nil && !Ours(&request) {
		return nil
	}
	if err != nil {
		return err
	}
	verdict := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "CSRApproved",
		Message: "a node's own certificate for Multus", LastUpdateTime: metav1.Now(),
	}
	level, kind := slog.LevelInfo, corev1.EventTypeNormal
	if refusal := Judge(&request); refusal != nil {
		verdict.Type, verdict.Reason, verdict.Message = certificatesv1.CertificateDenied, "CSRDenied", refusal.Error()
		level, kind = slog.LevelWarn, corev1.EventTypeWarning
	}
	request.Status.Conditions = append(request.Status.Conditions, verdict)
	// The subresource: an update of the request itself would drop the condition.
	err = a.client.Put().Resource(nodecert.Resource).Name(name).SubResource("approval").Body(&request).Do(ctx).Error()
	if err != nil {
		return err
	}
	a.log.Log(ctx, level, "decided", "request", name, "user", request.Spec.Username, "decision", verdict.Type, "why", verdict.Message)
	if err := a.tell(ctx, &request, kind, verdict); err != nil {
		a.log.Warn("event lost", "request", name, "cause", err)
	}
	return nil
}

// tell records an event. Those of objects without a namespace are in the default one.
func (a *Approver) tell(ctx context.Context, request *certificatesv1.CertificateSigningRequest, kind string, verdict certificatesv1.CertificateSigningRequestCondition) error {
	now := verdict.LastUpdateTime
	body, err := json.Marshal(&corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", request.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest", Name: request.Name, UID: request.UID,
		},
		Type: kind, Reason: verdict.Reason, Message: verdict.Message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: source}, ReportingController: source,
	})
	if err != nil {
		return err
	}
	return a.client.Post().AbsPath("/api/v1/namespaces", metav1.NamespaceDefault, "events").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}
