package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Object is a stored object in its JSON form; numbers are json.Number.
type Object = map[string]any

// kind is one kind of object that the server keeps.
type kind struct {
	prefix     string // of the path
	resource   string
	apiVersion string
	name       string
}

var (
	pods   = kind{"/api/v1", "pods", "v1", "Pod"}
	events = kind{"/api/v1", "events", "v1", "Event"}
	nads   = kind{"/apis/k8s.cni.cncf.io/v1", "network-attachment-definitions", "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"}
)

// change is one step of an object's life. Before or after is nil at its ends.
type change struct {
	version       int64
	resource      string
	before, after Object
}

// store keeps objects and the history of their changes. The Server's lock guards it.
// A stored object is never changed in place.
type store struct {
	version   int64
	uids      int64
	objects   map[string]map[string]Object // by resource and "namespace/name"
	history   []change
	forgotten int64         // changes up to this version are not in history
	changed   chan struct{} // closed, and made anew, at each change
}

func newStore() store {
	return store{
		version: 1,
		objects: map[string]map[string]Object{pods.resource: {}, events.resource: {}, nads.resource: {}, csrs.resource: {}},
		changed: make(chan struct{}),
	}
}

// PutPod creates or replaces a pod and returns it as stored. Without a UID it keeps
// the one it has, or gets a new one.
func (s *Server) PutPod(pod *corev1.Pod) Object {
	return s.put(pods, toObject(pod))
}

// PutNAD creates or replaces a NetworkAttachmentDefinition. UIDs are as for PutPod.
func (s *Server) PutNAD(m metav1.ObjectMeta, config string) Object {
	return s.put(nads, toObject(map[string]any{"metadata": m, "spec": map[string]any{"config": config}}))
}

// DeletePod removes a pod, if it is there.
func (s *Server) DeletePod(namespace, name string) { s.remove(pods, namespace, name) }

// DeleteNAD removes a NetworkAttachmentDefinition, if it is there.
func (s *Server) DeleteNAD(namespace, name string) { s.remove(nads, namespace, name) }

// Pod is a pod as stored; nil where there is none.
func (s *Server) Pod(namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.objects[pods.resource][namespace+"/"+name]
}

// Events are the events that were created, in the order of their names.
func (s *Server) Events() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Object
	for _, key := range slices.Sorted(maps.Keys(s.store.objects[events.resource])) {
		list = append(list, s.store.objects[events.resource][key])
	}
	return list
}

// ExpireEvents removes all events, as time does.
func (s *Server) ExpireEvents() {
	for _, e := range s.Events() {
		m := metadata(e)
		s.remove(events, text(m, "namespace"), text(m, "name"))
	}
}

func (s *Server) put(k kind, o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.put(k, o)
}

func (s *Server) remove(k kind, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.store.objects[k.resource][namespace+"/"+name]
	if before == nil {
		return
	}
	delete(s.store.objects[k.resource], namespace+"/"+name)
	s.store.record(k, before, nil)
}

// put stores o, which it takes over, and fills in what the server gives an object.
func (st *store) put(k kind, o Object) Object {
	m := metadata(o)
	key := text(m, "namespace") + "/" + text(m, "name")
	before := st.objects[k.resource][key]
	o["apiVersion"], o["kind"] = k.apiVersion, k.name
	if text(m, "uid") == "" {
		m["uid"] = text(metadata(before), "uid")
	}
	if text(m, "uid") == "" {
		st.uids++
		m["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", st.uids)
	}
	m["resourceVersion"] = strconv.FormatInt(st.version+1, 10)
	st.objects[k.resource][key] = o
	st.record(k, before, o)
	return o
}

func (st *store) record(k kind, before, after Object) {
	st.version++
	st.history = append(st.history, change{st.version, k.resource, before, after})
	close(st.changed)
	st.changed = make(chan struct{})
}

// list returns the selected objects, in the order of their keys, that come after a key.
func (st *store) list(k kind, sel selection, after string, limit int) (objects []Object, last string) {
	all := st.objects[k.resource]
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= after || !sel.has(all[key]) {
			continue
		}
		if limit > 0 && len(objects) == limit {
			return objects, last
		}
		objects, last = append(objects, all[key]), key
	}
	return objects, ""
}

// selection is what a list or a watch asks for.
type selection struct {
	namespace string // "" for all
	fields    fields.Selector
}

func (sel selection) has(o Object) bool {
	if o == nil {
		return false
	}
	m := metadata(o)
	spec, _ := o["spec"].(Object)
	return (sel.namespace == "" || sel.namespace == text(m, "namespace")) && sel.fields.Matches(fields.Set{
		"metadata.name":      text(m, "name"),
		"metadata.namespace": text(m, "namespace"),
		"spec.nodeName":      text(spec, "nodeName"),
		"spec.signerName":    text(spec, "signerName"),
	})
}

// metadata is the object's own metadata, made if it is missing; nil for a nil object.
func metadata(o Object) Object {
	if o == nil {
		return nil
	}
	m, ok := o["metadata"].(Object)
	if !ok {
		m = Object{}
		o["metadata"] = m
	}
	return m
}

func text(o Object, key string) string {
	s, _ := o[key].(string)
	return s
}

// toObject copies a value by way of JSON. It panics for values that JSON cannot
// express, which is a mistake of the test's author.
func toObject(v any) Object {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	o, err := decode(data)
	if err != nil {
		panic(err)
	}
	return o
}

func decode(data []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o Object
	return o, d.Decode(&o)
}

// merge applies a JSON merge patch (RFC 7386) and leaves both arguments as they are.
func merge(target any, patch any) any {
	p, ok := patch.(Object)
	if !ok {
		return patch
	}
	t, _ := target.(Object)
	result := maps.Clone(t)
	if result == nil {
		result = Object{}
	}
	for key, value := range p {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = merge(result[key], value)
		}
	}
	return result
}

// joinConditions makes the conditions of a strategic merge patch the whole list: each of
// them takes the place of that of its type (patchMergeKey).
func joinConditions(before, patch Object) {
	status, _ := patch["status"].(Object)
	ours, given := status["conditions"].([]any)
	if !given {
		return
	}
	was, _ := before["status"].(Object)
	all, _ := was["conditions"].([]any)
	joined := slices.Clone(all)
	for _, o := range ours {
		i := slices.IndexFunc(joined, func(c any) bool { return c.(Object)["type"] == o.(Object)["type"] })
		if i < 0 {
			joined = append(joined, o)
		} else {
			joined[i] = o
		}
	}
	status["conditions"] = joined
}
