package nodestate

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is what is looked at of the thin plugin's kubeconfig.
type kubeconfig struct {
	Users []struct {
		User struct {
			Token             string `json:"token"`
			TokenFile         string `json:"tokenFile"`
			ClientCertificate string `json:"client-certificate"`
			CertificateData   []byte `json:"client-certificate-data"`
		} `json:"user"`
	} `json:"users"`
}

func (e *examination) kubeconfig(context.Context) Finding {
	if e.Config.Plugin != "multus" || e.Config.parsed == nil {
		return note("only the thin plugin has one")
	}
	path := e.Config.parsed.Kubeconfig
	if path == "" {
		return note("none: the plugin attaches what its configuration says, and asks no API server")
	}
	const symptom = "pods do not start, or without the networks that they select"
	const fix = "see that the DaemonSet's pod runs on this node: it writes the file, and again when its token changes"
	raw, err := e.Paths.readHost(path)
	if err != nil {
		return wrong(err.Error(), symptom, fix)
	}
	var file kubeconfig
	if yaml.Unmarshal(raw, &file) != nil || len(file.Users) == 0 {
		return wrong(path+" is no kubeconfig with a user", symptom, fix)
	}
	until, err := e.expiry(file)
	switch {
	case err != nil:
		return wrong(path+": "+err.Error(), symptom, fix)
	case until.IsZero():
		return ok(path)
	case !until.After(e.now):
		return wrong(path+" expired at "+until.UTC().Format(time.RFC3339), symptom, fix)
	}
	return ok(path + " is good until " + until.UTC().Format(time.RFC3339))
}

// expiry tells until when a kubeconfig's credential is good; zero where that is not told.
func (e *examination) expiry(file kubeconfig) (time.Time, error) {
	user := file.Users[0].User
	read := func(path string, inline []byte) ([]byte, error) {
		if path == "" || len(inline) > 0 {
			return inline, nil
		}
		return e.Paths.readHost(path)
	}
	certificate, err := read(user.ClientCertificate, user.CertificateData)
	if err != nil {
		return time.Time{}, err
	}
	token, err := read(user.TokenFile, []byte(user.Token))
	if err != nil {
		return time.Time{}, err
	}
	if len(certificate) > 0 {
		return certificateEnd(certificate)
	}
	return tokenEnd(string(token)), nil
}

func certificateEnd(text []byte) (time.Time, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, fmt.Errorf("the client certificate: %w", err)
		}
		return c.NotAfter, nil
	}
	return time.Time{}, fmt.Errorf("the client certificate is not PEM")
}

// tokenEnd reads the end of a service account's token, which is a JWT (RFC 7519); others do
// not tell.
func tokenEnd(token string) time.Time {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}
