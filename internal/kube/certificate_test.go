package kube

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestC1_16OldCertificateThroughAGap: who renews a certificate may remove it first, or
// write it piece by piece.
func TestC1_16OldCertificateThroughAGap(t *testing.T) {
	s, dir := startTLS(t, "127.0.0.1"), t.TempDir()
	s.PutPod(podWeb())
	s.RequireUser("first")
	c := connectIn(t, s, dir)
	file := filepath.Join(dir, "client.pem")
	reads := func(what string, want error) {
		t.Helper()
		c.Close() // connections keep the certificate that they began with
		if _, err := c.Live(t.Context(), "shop", "web"); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	reads("at first", nil)
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	reads("emptied", nil)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	reads("removed", nil)
	pem, err := s.Certificate("second")
	if err := errors.Join(err, os.WriteFile(file, pem, 0o600)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.Live(t.Context(), "shop", "web"); !apierrors.IsUnauthorized(err) {
		t.Errorf("renewed: %v, want the new certificate to be shown", err)
	}
	s.RequireUser("second")
	reads("renewed", nil)
}
