package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"
)

// coded gives an error a CNI error code.
type coded struct {
	code uint
	err  error
}

// WithCode wraps err so that CNIError reports it under the CNI error code (CNI
// specification, section "Error"). Its text is err's.
func WithCode(code uint, err error) error { return &coded{code, err} }

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }
func (c *coded) CNICode() uint { return c.code }

// CNIError is the one place where errors become CNI errors. The code is that of
// the outermost error in the chain that has one: our own kinds by a method
// CNICode, a plugin's by being a *types.Error. An ended deadline is "try again
// later" (11); anything else is 999. The text is the whole chain's.
func CNIError(err error) *types.Error {
	if err == nil {
		return nil
	}
	var ours interface{ CNICode() uint }
	var plugin *types.Error
	code := types.ErrInternal
	switch {
	case errors.As(err, &ours):
		code = ours.CNICode()
	case errors.As(err, &plugin):
		code = plugin.Code
	case errors.Is(err, context.DeadlineExceeded):
		code = types.ErrTryAgainLater
	}
	return types.NewError(code, err.Error(), "")
}

// ErrDepends says of a plan request marked plain that its pod is not: the daemon
// knows of further networks, and cannot plan them now. The caller must not go on alone.
var ErrDepends = errors.New("the pod depends on the daemon's plan")

// depends is a CNI error of such a request, as a client reads it.
type depends struct{ cni *types.Error }

func (d depends) Error() string        { return d.cni.Error() }
func (d depends) Unwrap() error        { return d.cni }
func (d depends) Is(target error) bool { return target == ErrDepends }

// TryLater tells whether err means that the same call may succeed later.
func TryLater(err error) bool { return err != nil && CNIError(err).Code == types.ErrTryAgainLater }

// WriteError answers an HTTP request with a CNI error.
func WriteError(w http.ResponseWriter, err error) {
	cni := CNIError(err)
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, ErrDepends):
		status = http.StatusConflict
	case cni.Code == types.ErrTryAgainLater:
		status = http.StatusServiceUnavailable
	}
	WriteJSON(w, status, cni)
}

// WriteJSON answers an HTTP request with a JSON value.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	raw, err := marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a caller that has gone cannot be told
}

// marshal leaves "<", ">" and "&" as they are: configurations cross the socket byte for byte.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return b.Bytes(), err
}

// readError decodes the body of a failed request.
func readError(status int, body []byte) error {
	var cni types.Error
	if err := json.Unmarshal(body, &cni); err != nil || cni.Msg == "" {
		const longest = 200
		if len(body) > longest {
			body = body[:longest]
		}
		return fmt.Errorf("the daemon answered HTTP %d: %q", status, bytes.TrimSpace(body))
	}
	if status == http.StatusConflict {
		return depends{&cni}
	}
	return &cni
}

// ErrorBody is a CNI error as JSON, as a plugin prints it (CNI specification,
// section "Error"). cniVersion is the version of the protocol in use.
func ErrorBody(cniVersion string, err *types.Error) []byte {
	raw, merr := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cniVersion, err})
	if merr != nil {
		return []byte(`{"code":999,"msg":"the error cannot be printed"}`)
	}
	return raw
}
