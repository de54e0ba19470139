package apiserver

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

var csrs = kind{"/apis/certificates.k8s.io/v1", "certificatesigningrequests", "certificates.k8s.io/v1", "CertificateSigningRequest"}

// SignFor makes the certificates that are signed from now on valid for so long,
// whatever was asked for; a day at the start.
func (s *Server) SignFor(lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.lifetime = lifetime
}

// PutCSR creates or replaces a certificate signing request, with the user that it names.
func (s *Server) PutCSR(request *certificatesv1.CertificateSigningRequest) Object {
	return s.put(csrs, toObject(request))
}

// CSRs are the certificate signing requests, in the order of their names.
func (s *Server) CSRs() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.store.objects[csrs.resource]
	var list []Object
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[key])
	}
	return list
}

// identify names a new request and says who made it, as real servers do.
func (s *Server) identify(o Object, r *http.Request) {
	m := metadata(o)
	if text(m, "name") == "" {
		m["name"] = fmt.Sprintf("%s%05d", text(m, "generateName"), s.store.version)
	}
	groups := []any{}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		for _, g := range r.TLS.PeerCertificates[0].Subject.Organization {
			groups = append(groups, g)
		}
	}
	spec := o["spec"].(Object)
	spec["username"], spec["groups"] = user(r), append(groups, "system:authenticated")
	o["status"] = Object{}
}

// approve takes over the conditions of the approval subresource, and signs what is
// approved.
func (s *Server) approve(w http.ResponseWriter, c call) {
	sent, err := decode(c.body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.change(w, c, sent, func(before Object) Object {
		after := maps.Clone(before)
		status, _ := sent["status"].(Object)
		conditions, _ := status["conditions"].([]any)
		after["metadata"], after["status"] = maps.Clone(metadata(before)), Object{"conditions": conditions}
		for _, condition := range conditions {
			if text(condition.(Object), "type") == string(certificatesv1.CertificateApproved) {
				after["status"].(Object)["certificate"] = s.sign(text(before["spec"].(Object), "request"))
			}
		}
		return after
	})
}

// sign makes the certificate of a request; both as they stand in objects. It panics for
// what is no request: who approved it made a mistake.
func (s *Server) sign(request string) string {
	raw, err := base64.StdEncoding.DecodeString(request)
	block, _ := pem.Decode(raw)
	if err != nil || block == nil {
		panic(errors.Join(err, errors.New("an approved request is not PEM")))
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	lifetime := s.script.lifetime
	if lifetime == 0 {
		lifetime = 24 * time.Hour
	}
	der, err := s.tls.certificate(&x509.Certificate{
		SerialNumber: big.NewInt(s.store.version), Subject: asked.Subject,
		NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime),
	}, asked.PublicKey)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// certificate makes a client's certificate for a public key.
func (id *identity) certificate(template *x509.Certificate, key any) ([]byte, error) {
	authority, err := x509.ParseCertificate(id.pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return x509.CreateCertificate(rand.Reader, template, authority, key, id.pair.PrivateKey)
}
