package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/multus-thick/multus/internal/plan"
)

// Reasons of events (contract 1.11), and our own for an ADD that failed otherwise.
const (
	ReasonAddedInterface  = "AddedInterface"
	ReasonNoNetworkFound  = "NoNetworkFound"
	ReasonFailedAttaching = "FailedAttaching"
	ReasonConfigDisturbed = "MultusConfigDisturbed" // of a node
)

const (
	eventSource  = "multus"
	eventQueue   = 256             // more than a burst of pods on one node makes
	eventTries   = 3               // of one event, where the API does not answer
	eventPause   = time.Second     // between them
	eventDrain   = 2 * time.Second // for what is queued when Run's context ends
	eventHistory = 256             // pods whose repeated events are counted instead of repeated
)

// Events sends events about pods and nodes in the background. It is only told, and never blocks:
// where the queue is full, or the API stays away, events are lost and the log says so.
type Events struct {
	client *Client
	log    *slog.Logger
	queue  chan *corev1.Event
	seen   *record.EventCorrelator // counts repetitions and limits the rate for each pod
}

// Events makes a queue, which Run empties.
func (c *Client) Events(log *slog.Logger) *Events {
	return &Events{
		client: c,
		log:    log,
		queue:  make(chan *corev1.Event, eventQueue),
		seen:   record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{LRUCacheSize: eventHistory}),
	}
}

// Added records that an interface was attached (Normal, AddedInterface).
func (e *Events) Added(pod plan.Pod, ifName string, ips []string, network string) {
	e.add(pod, corev1.EventTypeNormal, ReasonAddedInterface, fmt.Sprintf("Add %s %v from %s", ifName, ips, network))
}

// Refused records that a pod's request for networks is wrong (Warning, NoNetworkFound).
func (e *Events) Refused(pod plan.Pod, message string) {
	e.Warn(pod, ReasonNoNetworkFound, message)
}

// Warn records a failure (Warning) for a reason such as ReasonNoNetworkFound.
func (e *Events) Warn(pod plan.Pod, reason, message string) {
	e.add(pod, corev1.EventTypeWarning, reason, message)
}

// Disturbed records that the configuration which the node's runtime loads is not as Multus
// made it (Warning). The kubelet names a node as its UID too, so that describe shows it.
func (e *Events) Disturbed(node, message string) {
	e.record(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, corev1.EventTypeWarning, ReasonConfigDisturbed, message)
}

// Note records what went well (Normal) for a reason such as ReasonAddedInterface.
func (e *Events) Note(pod plan.Pod, reason, message string) {
	e.add(pod, corev1.EventTypeNormal, reason, message)
}

func (e *Events) add(pod plan.Pod, eventType, reason, message string) {
	e.record(corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
	}, eventType, reason, message)
}

func (e *Events) record(about corev1.ObjectReference, eventType, reason, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
			Name:      fmt.Sprintf("%s.%x", about.Name, now.UnixNano()),
		},
		InvolvedObject: about,
		Type:           eventType, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: eventSource}, ReportingController: eventSource,
	}
	select {
	case e.queue <- event:
	default:
		e.log.Warn("event lost: the queue is full", "about", about.Namespace+"/"+about.Name, "reason", reason)
	}
}

// Flush sends what is queued, within two seconds: for a program that is about to end
// and has no Run.
func (e *Events) Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), eventDrain) //nolint:forbidigo // the caller's own has ended
	defer cancel()
	e.drain(ctx)
}

func (e *Events) drain(ctx context.Context) {
	for len(e.queue) > 0 && ctx.Err() == nil {
		e.send(ctx, <-e.queue)
	}
}

// Run sends events until ctx ends; what is under way and queued then gets two seconds.
func (e *Events) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(eventDrain, cancel) })()
	for {
		select {
		case event := <-e.queue:
			e.send(sending, event)
		case <-ctx.Done():
			e.drain(sending)
			return
		}
	}
}

// send sends one event, or counts it as the repetition of an earlier one.
func (e *Events) send(ctx context.Context, event *corev1.Event) {
	result, err := e.seen.EventCorrelate(event)
	if err != nil || result.Skip {
		return
	}
	stored, err := e.write(ctx, result)
	for try := 1; try < eventTries && err != nil && !isAnswer(err) && ctx.Err() == nil; try++ {
		select {
		case <-time.After(eventPause):
			stored, err = e.write(ctx, result)
		case <-ctx.Done():
		}
	}
	if err == nil {
		e.seen.UpdateState(stored)
		return
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	e.log.Warn("event lost", "about", event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name, "reason", event.Reason,
		"cause", explain("create and patch", "events", err))
}

// write patches the count of an event that the API has, and creates it else.
func (e *Events) write(ctx context.Context, r *record.EventCorrelateResult) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := []string{"/api/v1/namespaces", r.Event.Namespace, "events"}
	if r.Event.Count > 1 {
		stored, err := eventAnswer(e.client.nads.Patch(types.StrategicMergePatchType).
			AbsPath(append(path, r.Event.Name)...).Body(r.Patch).Do(ctx).Raw())
		if !apierrors.IsNotFound(err) {
			return stored, err
		}
		r.Event.ResourceVersion = "" // it has expired
	}
	body, err := json.Marshal(r.Event)
	if err != nil {
		return nil, err
	}
	return eventAnswer(e.client.nads.Post().AbsPath(path...).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Raw())
}

// isAnswer tells an error that the API server sent from one of reaching it.
func isAnswer(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status)
}

func eventAnswer(body []byte, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}
	event := &corev1.Event{}
	return event, json.Unmarshal(body, event)
}
