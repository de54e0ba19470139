package approver

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/multus-thick/multus/internal/nodecert"
)

// longest is how long a certificate may live.
const longest = 365 * 24 * time.Hour

// userPrefixes are of those who may ask: the kubelet's user, and that of an earlier
// certificate. The node's name follows.
var userPrefixes = []string{"system:node:", nodecert.UserPrefix}

// groups are those that who asks may belong to.
var groups = []string{"system:nodes", nodecert.Organization, "system:authenticated"}

// Ours tells whether a request waits for this approver: it asks the API server's signer
// for a certificate of a node's Multus, and nobody has decided.
func Ours(request *certificatesv1.CertificateSigningRequest) bool {
	if request.Spec.SignerName != nodecert.Signer || len(request.Status.Conditions) > 0 || len(request.Status.Certificate) > 0 {
		return false
	}
	asked, err := parse(request)
	return err == nil && strings.HasPrefix(asked.Subject.CommonName, nodecert.UserPrefix)
}

// Judge tells why a request of ours must be denied; nil where it is to be approved.
func Judge(request *certificatesv1.CertificateSigningRequest) error {
	asked, err := parse(request)
	if err != nil {
		return err
	}
	spec := request.Spec
	node, ok := nodeOf(spec.Username)
	switch {
	case !ok:
		return fmt.Errorf("the user %q is no node: want %s", spec.Username, strings.Join(userPrefixes, "NODE or ")+"NODE")
	case asked.Subject.CommonName != nodecert.UserPrefix+node:
		return fmt.Errorf("the user %q asks for a certificate of %q, not of its own node", spec.Username, asked.Subject.CommonName)
	case !slices.Equal(asked.Subject.Organization, []string{nodecert.Organization}):
		return fmt.Errorf("the organizations are %q: want %q alone", asked.Subject.Organization, nodecert.Organization)
	case len(asked.DNSNames)+len(asked.IPAddresses)+len(asked.EmailAddresses)+len(asked.URIs) > 0:
		return fmt.Errorf("the request has further names: want none")
	}
	if i := slices.IndexFunc(spec.Groups, func(g string) bool { return !slices.Contains(groups, g) }); i >= 0 {
		return fmt.Errorf("the user is in the group %q: want none but %s", spec.Groups[i], strings.Join(groups, ", "))
	}
	if !sameUsages(spec.Usages) {
		return fmt.Errorf("the usages are %q: want %q", spec.Usages, nodecert.Usages())
	}
	if seconds := spec.ExpirationSeconds; seconds == nil || *seconds > int32(longest/time.Second) {
		return fmt.Errorf("expirationSeconds must be there, and %d at most", int32(longest/time.Second))
	}
	return nil
}

func sameUsages(usages []certificatesv1.KeyUsage) bool {
	want := nodecert.Usages()
	return len(usages) == len(want) && !slices.ContainsFunc(want, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(usages, u) })
}

func nodeOf(user string) (node string, ok bool) {
	for _, prefix := range userPrefixes {
		if node, ok := strings.CutPrefix(user, prefix); ok && node != "" {
			return node, true
		}
	}
	return "", false
}

// parse reads the request itself, and checks that who made it holds the key.
func parse(request *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("the request is not a certificate request in PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return asked, asked.CheckSignature()
}
