// Package check is what the rigs of the tests ask of values and errors, each for its
// own world. A rig embeds T. Tests alone use it.
package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/api"
)

// T is a test with checks.
type T struct{ *testing.T }

// Must ends the test where err is not nil.
func (t T) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Same compares whole values.
func (t T) Same(what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Fails demands an error with a CNI code whose text holds some words.
func (t T) Fails(err error, code uint, words string) {
	t.Helper()
	if cni := api.CNIError(err); cni == nil || cni.Code != code || !strings.Contains(cni.Msg, words) {
		t.Errorf("got %v (%+v), want code %d and %q", err, cni, code, words)
	}
}

// Eventually polls until ok, for 10 s at most.
func (t T) Eventually(what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}
