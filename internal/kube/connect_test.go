package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/gather"
)

func TestT23InClusterAddresses(t *testing.T) {
	dir := serviceAccount(t)
	for host, want := range map[string]string{
		"10.0.0.1":   "https://10.0.0.1:443",
		"fd00::1":    "https://[fd00::1]:443",
		"api.intern": "https://api.intern:443",
	} {
		cfg, err := restConfig(Options{Host: host, Port: "443", ServiceAccount: dir, UserAgent: "multus-test"})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != want || cfg.CAFile != filepath.Join(dir, "ca.crt") || cfg.UserAgent != "multus-test" || cfg.Timeout != 0 {
			t.Errorf("%s: %v", host, cfg)
		}
	}
}

// TestT23MissingFilesMayCome holds that files which are not there yet are told from
// those that are wrong, and that every message names the file.
func TestT23MissingFilesMayCome(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := func(name, cluster, user string) string {
		return file(name, `{"apiVersion":"v1","kind":"Config","current-context":"c",
			"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
			"clusters":[{"name":"c","cluster":{`+cluster+`}}],"users":[{"name":"u","user":{`+user+`}}]}`)
	}
	account := serviceAccount(t)
	if err := os.WriteFile(filepath.Join(account, "token"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options Options
		is      error // nil for an error that stays
		text    string
	}{
		"nothing given":   {Options{}, ErrNoCluster, "no kubeconfig"},
		"half an address": {Options{Host: "h"}, ErrNoCluster, "no kubeconfig"},
		"no kubeconfig":   {Options{Kubeconfig: dir + "/absent"}, gather.ErrNotYet, dir + "/absent"},
		"no CA":           {Options{Kubeconfig: config("b", `"server":"https://h","certificate-authority":"b.crt"`, ``)}, gather.ErrNotYet, dir + "/b.crt"},
		"no CA beside a certificate": {
			Options{Kubeconfig: config("a", `"server":"https://h","certificate-authority":"b.crt"`, `"client-certificate":"a.crt","client-key":"a.key"`)},
			gather.ErrNotYet, dir + "/b.crt",
		},
		"no token":       {Options{Kubeconfig: config("c", `"server":"https://h"`, `"tokenFile":"c.token"`)}, gather.ErrNotYet, dir + "/c.token"},
		"broken":         {Options{Kubeconfig: file("d", "{")}, nil, dir + "/d"},
		"empty":          {Options{Kubeconfig: file("e", "")}, nil, dir + "/e"},
		"no account":     {Options{Host: "h", Port: "1", ServiceAccount: dir}, gather.ErrNotYet, dir + "/token"},
		"empty token":    {Options{Host: "h", Port: "1", ServiceAccount: account}, nil, account + "/token is empty"},
		"URL of nothing": {Options{Kubeconfig: config("f", `"server":"https://[h"`, ``)}, nil, "https://[h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Connect(c.options)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v does not name %s", err, c.text)
			}
			if c.is != nil && !errors.Is(err, c.is) || c.is == nil && errors.Is(err, gather.ErrNotYet) {
				t.Errorf("error of the wrong kind: %v", err)
			}
		})
	}
}

func serviceAccount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"token", "ca.crt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
