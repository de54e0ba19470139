// Command v4 stands in for Multus v4 on a node, which cannot be had here: a CNI plugin that
// attaches every pod to the primary network and to those of a file, and leaves on the
// disk what v4 leaves (contract 1.9): libcni's cache and a scratch file, in v4's form and in
// v4's folder. Its DEL reads the scratch file as v4 does, also one that we wrote.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// networksFile lists the networks of every pod.
const networksFile = "/etc/cni/v4-networks.json"

// netConf is what is read of the generated configuration.
type netConf struct {
	CNIDir         string `json:"cniDir"`
	ClusterNetwork string `json:"clusterNetwork"`
}

// delegate is an element of v4's scratch file.
type delegate struct {
	Conf             json.RawMessage `json:"Conf"`
	ConfList         json.RawMessage `json:"ConfList"`
	Name             string          `json:"Name"`
	InterfaceRequest string          `json:"ifnameRequest,omitempty"`
	FilterV4Gateway  bool            `json:"IsFilterV4Gateway"`
	FilterV6Gateway  bool            `json:"IsFilterV6Gateway"`
	Bytes            []byte          `json:"Bytes"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.All, "v4")
}

// configured are the delegates of a new pod.
func configured(conf netConf) ([]delegate, error) {
	primary, err := os.ReadFile(strings.TrimPrefix(conf.ClusterNetwork, "/host"))
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(networksFile)
	if err != nil {
		return nil, err
	}
	var networks []struct {
		Name, Interface string
		Config          json.RawMessage
	}
	if err := json.Unmarshal(raw, &networks); err != nil {
		return nil, err
	}
	all := []delegate{element(primary, "primary", "")}
	for _, n := range networks {
		all = append(all, element(n.Config, n.Name, n.Interface))
	}
	return all, nil
}

// element keeps of a configuration what v4's typed copies keep: little, beside the bytes.
func element(config []byte, name, interfaceRequest string) delegate {
	var kept struct {
		CNIVersion string            `json:"cniVersion"`
		Name       string            `json:"name"`
		Type       string            `json:"type,omitempty"`
		IPAM       struct{}          `json:"ipam"`
		Plugins    []json.RawMessage `json:"plugins,omitempty"`
	}
	_ = json.Unmarshal(config, &kept)
	typed, _ := json.Marshal(kept)
	d := delegate{Conf: typed, ConfList: []byte("{}"), Name: name, InterfaceRequest: interfaceRequest, Bytes: config}
	if kept.Plugins != nil {
		d.Conf, d.ConfList = []byte(`{"ipam":{}}`), typed
	}
	return d
}

func (d delegate) list() (*libcni.NetworkConfigList, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(d.Bytes, &keys); err != nil {
		return nil, err
	}
	if keys["plugins"] != nil {
		return libcni.ConfListFromBytes(d.Bytes)
	}
	conf, err := libcni.NetworkPluginConfFromBytes(d.Bytes)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

// sandbox is a call of the runtime.
type sandbox struct {
	*skel.CmdArgs
	netConf
	cni *libcni.CNIConfig
}

func open(args *skel.CmdArgs) (*sandbox, error) {
	s := &sandbox{CmdArgs: args}
	if err := json.Unmarshal(args.StdinData, &s.netConf); err != nil {
		return nil, err
	}
	s.cni = libcni.NewCNIConfigWithCacheDir(strings.Split(args.Path, ":"), s.CNIDir, nil)
	return s, os.MkdirAll(s.CNIDir, 0o700)
}

func (s *sandbox) scratch() string { return filepath.Join(s.CNIDir, s.ContainerID) }

func (s *sandbox) runtimeConf(i int, d delegate) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: s.ContainerID, NetNS: s.Netns, IfName: d.InterfaceRequest, CacheDir: s.CNIDir}
	if i == 0 {
		rt.IfName = s.IfName
	} else if rt.IfName == "" {
		rt.IfName = fmt.Sprintf("net%d", i)
	}
	for _, pair := range strings.Split(s.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
	return rt
}

func add(args *skel.CmdArgs) error {
	s, err := open(args)
	if err != nil {
		return err
	}
	delegates, err := configured(s.netConf)
	if err != nil {
		return err
	}
	scratch, err := json.Marshal(delegates)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.scratch(), scratch, 0o600); err != nil {
		return err
	}
	var first types.Result
	for i, d := range delegates {
		list, err := d.list()
		if err != nil {
			return err
		}
		result, err := s.cni.AddNetworkList(context.Background(), list, s.runtimeConf(i, d))
		if err != nil {
			return err
		}
		if i == 0 {
			first = result
		}
	}
	return types.PrintResult(first, "0.4.0")
}

func del(args *skel.CmdArgs) error {
	s, err := open(args)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(s.scratch())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var delegates []delegate
	if err := json.Unmarshal(raw, &delegates); err != nil {
		return fmt.Errorf("the scratch file %s: %w", s.scratch(), err)
	}
	var failed []error
	for i, d := range slices.Backward(delegates) {
		list, err := d.list()
		if err == nil {
			err = s.cni.DelNetworkList(context.Background(), list, s.runtimeConf(i, d))
		}
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err // v4 would say nothing: the test wants to know
	}
	return os.Remove(s.scratch())
}
