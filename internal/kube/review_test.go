package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reviewer answers like an API server that knows the token "good", of a user who may get
// /metrics, and says what it was asked.
type reviewer struct {
	forbids string // a resource
	asked   []string
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	text := string(body)
	r.asked = append(r.asked, req.Method+" "+req.URL.Path+" "+text)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.forbids != "" && strings.HasSuffix(req.URL.Path, r.forbids):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
	case strings.HasSuffix(req.URL.Path, "/tokenreviews") && strings.Contains(text, `"good"`):
		fmt.Fprint(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"prom","uid":"u","groups":["g"],"extra":{"k":["v"]}}}}`)
	case strings.HasSuffix(req.URL.Path, "/tokenreviews"):
		fmt.Fprint(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"unknown"}}`)
	default:
		fmt.Fprintf(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, strings.Contains(text, `"/metrics"`))
	}
}

// TestI4_Review: the token is reviewed, then the user that it belongs to, whole.
func TestI4_Review(t *testing.T) {
	const tokens, access = "POST /apis/authentication.k8s.io/v1/tokenreviews ", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews "
	review := func(token string) string {
		return tokens + `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"` + token + `"},"status":{"user":{}}}`
	}
	ask := func(path string) string {
		return access + `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":{"path":"` + path +
			`","verb":"get"},"user":"prom","groups":["g"],"extra":{"k":["v"]},"uid":"u"},"status":{"allowed":false}}`
	}
	for name, tt := range map[string]struct {
		token, path, forbids string
		want                 string
		asked                []string
	}{
		"allowed":    {"good", "/metrics", "", "true true <nil>", []string{review("good"), ask("/metrics")}},
		"a stranger": {"bad", "/metrics", "", "false false <nil>", []string{review("bad")}},
		"known only": {"good", "/debug", "", "true false <nil>", []string{review("good"), ask("/debug")}},
		"no right to review": {
			"good", "/metrics", "tokenreviews", "false false RBAC must grant the verb create on tokenreviews: no",
			[]string{review("good")},
		},
		"no right to ask": {
			"good", "/metrics", "subjectaccessreviews", "true false RBAC must grant the verb create on subjectaccessreviews: no",
			[]string{review("good"), ask("/metrics")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reviewer{forbids: tt.forbids}
			server := httptest.NewServer(r)
			defer server.Close()
			path := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, server.URL)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Connect(Options{Kubeconfig: path, UserAgent: "multus-test"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			known, allowed, err := c.Review(t.Context(), tt.token, "get", tt.path)
			if got := fmt.Sprint(known, allowed, err); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.asked, r.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}
