package main

import (
	"encoding/json"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"
)

// add answers with the result of the plugin before it, or with an empty one.
func add(args *skel.CmdArgs) error {
	var conf types.PluginConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the network configuration is not valid", err.Error())
	}
	if err := cniversion.ParsePrevResult(&conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult is not a result of CNI version "+conf.CNIVersion, err.Error())
	}
	if conf.PrevResult == nil {
		conf.PrevResult = &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	}
	return types.PrintResult(conf.PrevResult, conf.CNIVersion)
}

// check refuses: there is nothing of passthru's own to check, and users of v4 know
// this answer (contract 1.2). A chain that wants CHECK sets disableCheck for it.
func check(*skel.CmdArgs) error {
	return types.NewError(types.ErrInternal, "passthru does not support CHECK", "set disableCheck in the chain")
}
