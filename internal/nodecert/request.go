package nodecert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// What a certificate says, and what it is asked for (contract 1.16).
const (
	UserPrefix   = "system:multus:" // of the common name, before the node's name
	Organization = "system:multus"
	Signer       = certificatesv1.KubeAPIServerClientSignerName
)

// Usages are what a certificate may be used for.
func Usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
}

// answerTimeout is how long a request may wait to be approved and signed. After it
// another is made.
const answerTimeout = 15 * time.Minute

// answerPause is how often a request is looked at.
var answerPause = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 12, Cap: 10 * time.Second}

// obtain asks for a certificate and waits for it; own is the current pair, nil for none.
// It returns certificate and key in PEM. It does not touch what Run's goroutine has.
func (k *Keeper) obtain(ctx context.Context, own []byte) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: UserPrefix + k.Node, Organization: []string{Organization}}
	signing, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		return nil, err
	}
	client, name, err := k.post(ctx, own, block("CERTIFICATE REQUEST", signing))
	if err != nil {
		return nil, err
	}
	defer client.Client.CloseIdleConnections()
	k.Log.Info("a client certificate is asked for", "request", name)
	certificate, err := await(ctx, client, name)
	if err != nil {
		return nil, err
	}
	return append(certificate, block("EC PRIVATE KEY", secret)...), nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// post makes the request with the current certificate, and with the bootstrap's
// credentials where that fails: the API server may not know the certificate's authority
// any more. It returns the client that was right, and the request's name.
func (k *Keeper) post(ctx context.Context, own, signing []byte) (*rest.RESTClient, string, error) {
	_, cfg, err := readKubeconfig(k.Bootstrap)
	if err != nil {
		return nil, "", err
	}
	// Read now: client-go would follow the files for longer than the client lives.
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, "", fmt.Errorf("bootstrap kubeconfig %s: %w", k.Bootstrap, err)
	}
	if own != nil {
		ours := rest.AnonymousClientConfig(cfg)
		ours.CertData, ours.KeyData = own, own
		client, name, err := k.postAs(ctx, ours, signing)
		if err == nil {
			return client, name, nil
		}
		k.Log.Warn("the client certificate does not suffice to renew it, the bootstrap's credentials are tried", "cause", err)
	}
	return k.postAs(ctx, cfg, signing)
}

func (k *Keeper) postAs(ctx context.Context, cfg *rest.Config, signing []byte) (*rest.RESTClient, string, error) {
	client, err := RESTClient(cfg)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seconds := int32(k.Duration / time.Second)
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "multus-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: signing, SignerName: Signer, Usages: Usages(), ExpirationSeconds: &seconds,
		},
	}
	if err := client.Post().Resource(Resource).Body(request).Do(ctx).Into(request); err != nil {
		client.Client.CloseIdleConnections()
		return nil, "", fmt.Errorf("create %s: %w", Resource, err)
	}
	return client, request.Name, nil
}

// await waits for the certificate of a request.
func await(ctx context.Context, client *rest.RESTClient, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var certificate []byte
	var away error // the API server, for a moment
	err := answerPause.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var found certificatesv1.CertificateSigningRequest
		away = client.Get().Resource(Resource).Name(name).Timeout(requestTimeout).Do(ctx).Into(&found)
		if apierrors.IsUnauthorized(away) || apierrors.IsNotFound(away) {
			return false, away
		}
		certificate = found.Status.Certificate
		return len(certificate) > 0, refusal(&found)
	})
	switch {
	case !wait.Interrupted(err) && err != nil:
		return nil, fmt.Errorf("certificate signing request %s: %w", name, err)
	case err != nil && away != nil:
		return nil, fmt.Errorf("certificate signing request %s: %w", name, away)
	case err != nil:
		return nil, fmt.Errorf("certificate signing request %s is neither approved nor denied, does cert-approver run? %w", name, err)
	}
	return certificate, nil
}

// refusal is the reason for which no certificate will come.
func refusal(request *certificatesv1.CertificateSigningRequest) error {
	for _, c := range request.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Type != certificatesv1.CertificateApproved {
			return fmt.Errorf("%s: %s", c.Type, c.Message)
		}
	}
	return nil
}
