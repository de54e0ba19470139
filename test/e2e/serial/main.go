// Command serial is a CNI plugin that attaches a sandbox to several networks one after
// the other, and does nothing else: what Multus is compared with.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.All, "serial")
}

// each calls f for every network of the configuration: the first is the interface of the
// runtime's choice, the others are net1, net2 and so on.
func each(args *skel.CmdArgs, f func(*libcni.CNIConfig, *libcni.NetworkConfigList, *libcni.RuntimeConf) error) error {
	var conf struct {
		Networks []json.RawMessage `json:"networks"`
	}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return err
	}
	cni := libcni.NewCNIConfigWithCacheDir(strings.Split(args.Path, ":"), "/var/lib/cni/serial", nil)
	for i, raw := range conf.Networks {
		list, err := network(raw)
		if err != nil {
			return err
		}
		rt := &libcni.RuntimeConf{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName}
		if i > 0 {
			rt.IfName = fmt.Sprintf("net%d", i)
		}
		for _, pair := range strings.Split(args.Args, ";") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				rt.Args = append(rt.Args, [2]string{key, value})
			}
		}
		if err := f(cni, list, rt); err != nil {
			return err
		}
	}
	return nil
}

func network(raw []byte) (*libcni.NetworkConfigList, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, err
	}
	if keys["plugins"] != nil { // without it libcni makes a list of no plugins
		return libcni.ConfListFromBytes(raw)
	}
	conf, err := libcni.NetworkPluginConfFromBytes(raw)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

func add(args *skel.CmdArgs) error {
	var first types.Result
	err := each(args, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		result, err := cni.AddNetworkList(context.Background(), list, rt)
		if first == nil {
			first = result
		}
		return err
	})
	if err != nil {
		return err
	}
	return types.PrintResult(first, "1.0.0")
}

func del(args *skel.CmdArgs) error {
	var failed []error
	err := each(args, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		failed = append(failed, cni.DelNetworkList(context.Background(), list, rt))
		return nil
	})
	return errors.Join(append(failed, err)...)
}
