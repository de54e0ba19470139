package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pki is the folder of a cluster's keys and certificates: NAME.key and NAME.crt.
type pki string

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// create makes them all; nodes are their addresses, by name.
func (p pki) create(nodes map[string]string) error {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return fmt.Errorf("the cluster's keys: %w", err)
	}
	if err := p.serviceAccountKey(); err != nil {
		return err
	}
	front, err := p.issue(nil, "front-proxy-ca", "lab-front-proxy-ca", "")
	if err != nil {
		return err
	}
	ca, err := p.issue(nil, "ca", "lab-ca", "")
	if err != nil {
		return err
	}
	clients := [][3]string{ // file, user, group
		{"admin", "lab-admin", "system:masters"},
		{"apiserver-kubelet-client", "lab-apiserver", "system:masters"},
		{"controller-manager", "system:kube-controller-manager"},
		{"scheduler", "system:kube-scheduler"},
		{"kube-proxy", "system:kube-proxy"},
	}
	_, err = p.issue(front, "front-proxy-client", "front-proxy-client", "")
	errs := []error{err}
	_, err = p.issue(ca, "apiserver", "kube-apiserver", "", controlPlaneIP, serviceIP, "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	errs = append(errs, err)
	for name, ip := range nodes {
		clients = append(clients, [3]string{name, "system:node:" + name, "system:nodes"})
		_, err = p.issue(ca, name+"-serving", name, "", name, ip)
		errs = append(errs, err)
	}
	for _, c := range clients {
		_, err = p.issue(ca, c[0], c[1], c[2])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// issue makes a key and its certificate; an authority's own where by is nil.
func (p pki) issue(by *authority, name, user, group string, hosts ...string) (*authority, error) {
	key, err := p.newKey(name)
	if err != nil {
		return nil, err
	}
	template, err := certificate(user, group, hosts)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	if by == nil {
		template.IsCA, template.ExtKeyUsage = true, nil
		template.KeyUsage |= x509.KeyUsageCertSign
		by = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	return &authority{cert, key}, p.write(name+".crt", "CERTIFICATE", der)
}

func certificate(user, group string, hosts []string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), // clocks may differ
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template, nil
}

func (p pki) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", name, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", name, err)
	}
	return key, p.write(name+".key", "EC PRIVATE KEY", der)
}

func (p pki) serviceAccountKey() error {
	key, err := p.newKey("service-account")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("key service-account: %w", err)
	}
	return p.write("service-account.pub", "PUBLIC KEY", der)
}

func (p pki) path(file string) string { return filepath.Join(string(p), file) }

func (p pki) write(file, kind string, der []byte) error {
	return os.WriteFile(p.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig is self-contained, so that it works in every mount namespace.
func (p pki) kubeconfig(user, server string) ([]byte, error) {
	var content [3][]byte
	for i, file := range []string{"ca.crt", user + ".crt", user + ".key"} {
		var err error
		if content[i], err = os.ReadFile(p.path(file)); err != nil {
			return nil, fmt.Errorf("kubeconfig of %s: %w", user, err)
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: content[0]}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: content[1], ClientKeyData: content[2]}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return clientcmd.Write(*config)
}
