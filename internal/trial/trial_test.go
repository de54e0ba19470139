package trial

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// unpack writes the files of a txtar archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestI2_SettingsAreTheTrialsPlaces: what a node's own file says of places is
// replaced, in any case of letters, and the rest is kept.
func TestI2_SettingsAreTheTrialsPlaces(t *testing.T) {
	f, err := Read(unpack(t, `
-- pod.yaml --
{apiVersion: v1, kind: Pod, metadata: {name: web}}
-- daemon-config.json --
{"chrootDir": "/hostroot", "CNIConfigDir": "/host/etc/cni/net.d", "SOCKETDIR": "/x", "cniVersion": "0.3.1",
 "perNodeCertificate": {"enabled": false}, "logLevel": "debug", "namespaceIsolation": true, "ReadinessIndicatorFile": "/r"}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := string(indented(layout{"/w"}.settings(f, "/plugins").Bytes()))
	want := `{
  "logLevel": "debug",
  "cniVersion": "0.3.1",
  "namespaceIsolation": true,
  "kubeconfig": "/w/cluster",
  "multusConfigFile": "auto",
  "cniConfigDir": "/w/net.d",
  "hostCniConfigDir": "/w/net.d",
  "multusAutoconfigDir": "/w/net.d",
  "socketDir": "/w/socket",
  "daemonSocketDir": "/w/socket",
  "binDir": "/plugins",
  "cniDir": "/var/lib/cni/multus",
  "logToStderr": true
}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestI2_InterfacesThatNetworksName: the masters of the primary network and of all
// definitions, each once.
func TestI2_InterfacesThatNetworksName(t *testing.T) {
	f, err := Read(unpack(t, `
-- primary.conflist --
{"cniVersion": "1.0.0", "name": "p", "plugins": [{"type": "macvlan", "master": "eth9"}, {"type": "tuning"}]}
-- all.yaml --
{apiVersion: v1, kind: Pod, metadata: {name: web}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: a}, spec: {config: '{"type": "ipvlan", "master": "eth1", "ipam": {"type": "host-local", "dataDir": "/d"}}'}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: b}, spec: {config: '{"type": "macvlan", "master": "eth9", "ipam": "odd"}'}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: c}, spec: {config: '{"type": "macvlan", "master": 7}'}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: d}, spec: {config: 'no JSON'}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: e}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"eth9", "eth1"}, f.strings("", "master")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/d"}, f.strings("ipam", "dataDir")); diff != "" {
		t.Error(diff)
	}
}

func TestI2_WhatRemainsOfPlugins(t *testing.T) {
	dir := unpack(t, `
-- networks/lan/10.0.0.2 --
-- networks/lan/last_reserved_ip.0 --
-- networks/lan/lock --
-- multus/.lock/c1 --
-- multus/c1 --
`)
	if diff := cmp.Diff([]string{"file " + dir + "/multus/c1", "file " + dir + "/networks/lan/10.0.0.2"}, remains(dir)); diff != "" {
		t.Error(diff)
	}
	if left := remains(dir + "/absent"); left != nil {
		t.Errorf("an absent folder has %q", left)
	}
}

func TestI2_ExistingPartOfAPath(t *testing.T) {
	dir := unpack(t, "-- real/file --\n")
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{
		"/real":     {"/real", ""},
		"/link/":    {"/real", ""},
		"/link/a/b": {"/real", "a/b"},
		"/x":        {"", "x"},
	} {
		holder, rest, err := existing(dir + path)
		if got := [2]string{holder, rest}; err != nil || got != [2]string{dir + want[0], want[1]} {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
