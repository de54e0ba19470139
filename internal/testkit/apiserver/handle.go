package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// call is one request that the server understands.
type call struct {
	*http.Request
	kind        kind
	namespace   string
	name        string // "" for the collection
	subresource string
	body        []byte
	partial     bool // the client wants metadata only
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.handlers.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if code := s.arrive(r.Context(), Request{r.Method, r.URL.Path, r.URL.Query(), r.Header.Clone(), string(body), user(r)}); code != 0 {
		refuse(w, code, "")
		return
	}
	c, ok := s.parse(r)
	if !ok {
		// A real server answers paths that it does not know with plain text.
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	c.body = body
	switch {
	case r.Method == http.MethodGet && c.name != "" && c.subresource == "":
		s.get(w, c)
	case r.Method == http.MethodGet && c.name == "" && r.URL.Query().Get("watch") != "":
		s.watch(w, c)
	case r.Method == http.MethodGet && c.name == "":
		s.list(w, c)
	case r.Method == http.MethodPatch && (c.kind == pods && c.subresource == "status" || c.kind == events):
		s.patch(w, c)
	case r.Method == http.MethodPut && c.kind == pods && c.subresource == "status":
		s.update(w, c)
	case r.Method == http.MethodPost && (c.kind == events || c.kind == csrs) && c.name == "":
		s.create(w, c)
	case r.Method == http.MethodPost && c.kind == pods && c.subresource == "eviction":
		s.evict(w, c)
	case r.Method == http.MethodPut && c.kind == csrs && c.subresource == "approval":
		s.approve(w, c)
	default:
		refuse(w, http.StatusMethodNotAllowed, "")
	}
}

// user is the common name of the client's certificate; "" for none.
func user(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName
}

// enter counts a handler in, unless the server is being closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return false
	}
	s.handlers.Add(1)
	return true
}

// parse reads PREFIX[/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]].
func (s *Server) parse(r *http.Request) (call, bool) {
	c := call{Request: r, partial: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")}
	for _, k := range []kind{pods, events, nads, csrs} {
		rest, ok := strings.CutPrefix(r.URL.Path, k.prefix+"/")
		if !ok || s.isUnserved(k) {
			continue
		}
		part := strings.Split(rest, "/")
		if part[0] == "namespaces" && len(part) >= 3 {
			c.namespace, part = part[1], part[2:]
		}
		if part[0] != k.resource || len(part) > 3 {
			continue
		}
		part = append(part, "", "")
		c.kind, c.name, c.subresource = k, part[1], part[2]
		return c, true
	}
	return c, false
}

func (s *Server) isUnserved(k kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script.unserved[k.resource]
}

func (s *Server) get(w http.ResponseWriter, c call) {
	s.mu.Lock()
	o := s.store.objects[c.kind.resource][c.namespace+"/"+c.name]
	s.mu.Unlock()
	if o == nil {
		c.notFound(w)
		return
	}
	answer(w, http.StatusOK, c.shape(o))
}

// list answers pages where a limit is given, except for version 0, as real servers do.
func (s *Server) list(w http.ResponseWriter, c call) {
	sel, err := c.selection()
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	query := c.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	if query.Get("resourceVersion") == "0" {
		limit = 0
	}
	s.mu.Lock()
	objects, next := s.store.list(c.kind, sel, query.Get("continue"), limit)
	version := s.store.version
	s.mu.Unlock()

	items := make([]any, 0, len(objects))
	for _, o := range objects {
		items = append(items, c.shape(o))
	}
	list := Object{
		"apiVersion": c.kind.apiVersion, "kind": c.kind.name + "List", "items": items,
		"metadata": Object{"resourceVersion": strconv.FormatInt(version, 10), "continue": next},
	}
	if c.partial {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	answer(w, http.StatusOK, list)
}

// patch changes an object by a merge patch, with the UID and the resource version in
// it, if any, as preconditions. Under a status subresource the spec does not change.
func (s *Server) patch(w http.ResponseWriter, c call) {
	switch c.Header.Get("Content-Type") {
	case "application/merge-patch+json", "application/strategic-merge-patch+json":
	default:
		refuse(w, http.StatusUnsupportedMediaType, "")
		return
	}
	patch, err := decode(c.body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.change(w, c, patch, func(before Object) Object {
		if c.subresource == "status" {
			delete(patch, "spec")
		}
		if strings.HasPrefix(c.Header.Get("Content-Type"), "application/strategic") {
			joinConditions(before, patch)
		}
		after := merge(before, patch).(Object)
		after["metadata"] = maps.Clone(metadata(after))
		return after
	})
}

// update takes over what a whole pod says under its status subresource, with its UID
// and resource version as preconditions.
func (s *Server) update(w http.ResponseWriter, c call) {
	o, err := decode(c.body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.change(w, c, o, func(before Object) Object {
		o["spec"] = before["spec"]
		return o
	})
}

// change stores what becomes of an object where it fulfils the preconditions in sent.
func (s *Server) change(w http.ResponseWriter, c call, sent Object, become func(before Object) Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.store.objects[c.kind.resource][c.namespace+"/"+c.name]
	if before == nil {
		c.notFound(w)
		return
	}
	for _, key := range []string{"uid", "resourceVersion"} {
		if want := text(metadata(sent), key); want != "" && want != text(metadata(before), key) {
			refuse(w, http.StatusConflict, fmt.Sprintf("precondition failed: %s is not %s", key, want))
			return
		}
	}
	answer(w, http.StatusOK, c.shape(s.store.put(c.kind, become(before))))
}

func (s *Server) create(w http.ResponseWriter, c call) {
	o, err := decode(c.body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.kind == csrs {
		s.identify(o, c.Request)
	}
	if m := metadata(o); s.store.objects[c.kind.resource][text(m, "namespace")+"/"+text(m, "name")] != nil {
		refuse(w, http.StatusConflict, fmt.Sprintf("%s %q already exists", c.kind.resource, text(m, "name")))
		return
	}
	answer(w, http.StatusCreated, s.store.put(c.kind, o))
}

// evict deletes a pod at once, with the UID in deleteOptions as a precondition.
func (s *Server) evict(w http.ResponseWriter, c call) {
	o, err := decode(c.body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	options, _ := o["deleteOptions"].(Object)
	preconditions, _ := options["preconditions"].(Object)
	s.mu.Lock()
	before := s.store.objects[pods.resource][c.namespace+"/"+c.name]
	s.mu.Unlock()
	switch {
	case before == nil:
		c.notFound(w)
	case text(preconditions, "uid") != text(metadata(before), "uid"):
		refuse(w, http.StatusConflict, "precondition failed: the uid is another")
	default:
		s.DeletePod(c.namespace, c.name)
		answer(w, http.StatusCreated, Object{"apiVersion": "v1", "kind": "Status", "status": "Success"})
	}
}

// watch streams changes: from a version that the client knows, or after a list that
// begins the stream (sendInitialEvents).
func (s *Server) watch(w http.ResponseWriter, c call) {
	sel, err := c.selection()
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	from, _ := strconv.ParseInt(c.URL.Query().Get("resourceVersion"), 10, 64)
	initial := c.URL.Query().Get("sendInitialEvents") == "true"
	refused, forgotten, cut := initial && s.script.noStreams, !initial && from < s.store.forgotten, s.cut
	var objects []Object
	if initial {
		objects, _ = s.store.list(c.kind, sel, "", 0)
		from = s.store.version
	}
	s.mu.Unlock()
	switch {
	case refused:
		refuse(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden for watch")
		return
	case forgotten:
		refuse(w, http.StatusGone, "too old resource version")
		return
	}

	stream := json.NewEncoder(w)
	send := func(what string, o Object) { _ = stream.Encode(Object{"type": what, "object": c.shape(o)}) }
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for _, o := range objects {
		send("ADDED", o)
	}
	if initial {
		send("BOOKMARK", c.bookmark(from))
	}
	s.follow(w, c, sel, from, cut, send)
}

// follow sends the changes after a version until the client goes or the watch is cut.
func (s *Server) follow(w http.ResponseWriter, c call, sel selection, from int64, cut <-chan struct{}, send func(string, Object)) {
	for {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		history, changed := s.store.history, s.store.changed
		version, forgotten := s.store.version, s.store.forgotten
		s.mu.Unlock()
		if from < forgotten {
			return // changes are lost; the client will be told so when it comes back
		}
		for _, step := range history {
			if step.version <= from || step.resource != c.kind.resource {
				continue
			}
			switch had, has := sel.has(step.before), sel.has(step.after); {
			case had && has && text(metadata(step.before), "uid") == text(metadata(step.after), "uid"):
				send("MODIFIED", step.after)
			case had && has: // replaced in one step
				send("DELETED", step.before)
				send("ADDED", step.after)
			case has:
				send("ADDED", step.after)
			case had:
				send("DELETED", at(step.before, step.version))
			}
		}
		from = version
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-c.Context().Done():
			return
		}
	}
}

func (c call) selection() (selection, error) {
	f, err := fields.ParseSelector(c.URL.Query().Get("fieldSelector"))
	return selection{c.namespace, f}, err
}

// shape is the object as the client asked for it.
func (c call) shape(o Object) Object {
	if !c.partial {
		return o
	}
	return Object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
}

// bookmark marks the end of the list in a stream.
func (c call) bookmark(version int64) Object {
	return Object{"apiVersion": c.kind.apiVersion, "kind": c.kind.name, "metadata": Object{
		"resourceVersion": strconv.FormatInt(version, 10),
		"annotations":     Object{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

// at is the object with the version of its deletion.
func at(o Object, version int64) Object {
	m := maps.Clone(metadata(o))
	m["resourceVersion"] = strconv.FormatInt(version, 10)
	o = maps.Clone(o)
	o["metadata"] = m
	return o
}

func (c call) notFound(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", c.kind.resource, c.name))
}

// reasons are the words by which clients tell errors apart.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusGone:                metav1.StatusReasonExpired,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
}

func refuse(w http.ResponseWriter, code int, message string) {
	if message == "" {
		message = http.StatusText(code)
	}
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message,
	})
}

func answer(w http.ResponseWriter, code int, v any) {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		panic(err) // v came from JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // a client that has gone needs no answer
}
