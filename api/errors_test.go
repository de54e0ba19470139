package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// refusal is an error of another package that knows its CNI code.
type refusal struct{}

func (refusal) Error() string { return "not allowed" }
func (refusal) CNICode() uint { return 103 }

func TestC1_20CNIError(t *testing.T) {
	plugin := types.NewError(7, "bad config", "key x")
	for name, c := range map[string]struct {
		err  error
		want *types.Error
	}{
		"none":                    {nil, nil},
		"plain":                   {errors.New("broken"), types.NewError(999, "broken", "")},
		"coded":                   {WithCode(11, errors.New("wait")), types.NewError(11, "wait", "")},
		"coded, wrapped":          {fmt.Errorf("pod: %w", WithCode(11, errors.New("wait"))), types.NewError(11, "pod: wait", "")},
		"a plugin's":              {plugin, types.NewError(7, "bad config; key x", "")},
		"a plugin's, wrapped":     {fmt.Errorf("network n: %w", plugin), types.NewError(7, "network n: bad config; key x", "")},
		"code over a plugin's":    {WithCode(11, fmt.Errorf("later: %w", plugin)), types.NewError(11, "later: bad config; key x", "")},
		"code over another code":  {WithCode(11, WithCode(7, errors.New("x"))), types.NewError(11, "x", "")},
		"a kind with its code":    {fmt.Errorf("ns/net: %w", refusal{}), types.NewError(103, "ns/net: not allowed", "")},
		"a deadline":              {fmt.Errorf("asking: %w", context.DeadlineExceeded), types.NewError(11, "asking: context deadline exceeded", "")},
		"a plugin's, at deadline": {errors.Join(context.DeadlineExceeded, plugin), types.NewError(7, "context deadline exceeded\nbad config; key x", "")},
		"cancelled":               {context.Canceled, types.NewError(999, "context canceled", "")},
	} {
		t.Run(name, func(t *testing.T) {
			got := CNIError(c.err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if want := got != nil && got.Code == 11; TryLater(c.err) != want {
				t.Errorf("TryLater is %v", !want)
			}
		})
	}
}

func TestC1_20WithCodeKeepsTheChain(t *testing.T) {
	cause := errors.New("cause")
	if err := fmt.Errorf("a: %w", WithCode(11, fmt.Errorf("b: %w", cause))); !errors.Is(err, cause) || err.Error() != "a: b: cause" {
		t.Errorf("the chain is %v", err)
	}
}

func TestC1_8WriteError(t *testing.T) {
	for code, status := range map[uint]int{11: http.StatusServiceUnavailable, 7: http.StatusBadRequest, 999: http.StatusBadRequest} {
		w := httptest.NewRecorder()
		WriteError(w, WithCode(code, errors.New(`say "<so>"`)))
		var cni types.Error
		err := json.Unmarshal(w.Body.Bytes(), &cni)
		if err != nil || w.Code != status || w.Header().Get("Content-Type") != "application/json" || cni != (types.Error{Code: code, Msg: `say "<so>"`}) {
			t.Errorf("code %d: HTTP %d, %v, %s, %v", code, w.Code, w.Header(), w.Body, err)
		}
		if diff := cmp.Diff(error(&cni), readError(w.Code, w.Body.Bytes())); diff != "" {
			t.Errorf("the error does not come back: %s", diff)
		}
	}
	w := httptest.NewRecorder()
	if WriteJSON(w, http.StatusOK, func() {}); w.Code != http.StatusInternalServerError {
		t.Errorf("what does not marshal is answered with %d: %s", w.Code, w.Body)
	}
}

func TestC1_8ErrorsThatAreNoCNIErrors(t *testing.T) {
	for body, want := range map[string]string{
		"out of order\n":             `the daemon answered HTTP 500: "out of order"`,
		"":                           `the daemon answered HTTP 500: ""`,
		`{"code":7}`:                 `the daemon answered HTTP 500: "{\"code\":7}"`,
		`{"code":-1,"msg":"x"}`:      `the daemon answered HTTP 500: "{\"code\":-1,\"msg\":\"x\"}"`,
		strings.Repeat("long ", 100): `the daemon answered HTTP 500: "` + strings.TrimSpace(strings.Repeat("long ", 40)) + `"`,
	} {
		if got := fmt.Sprint(readError(500, []byte(body))); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestC1_20ErrorBody(t *testing.T) {
	got := string(ErrorBody("1.0.0", types.NewError(11, "wait", "for it")))
	if want := `{"cniVersion":"1.0.0","code":11,"msg":"wait","details":"for it"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Others import this package: it brings nothing but the standard library and the CNI types.
func TestI2_Imports(t *testing.T) {
	const self = "github.com/multus-thick/multus/api"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", self).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff([]string{"github.com/containernetworking/cni/pkg/types", self}, strings.Fields(string(out))); diff != "" {
		t.Error(diff)
	}
}
