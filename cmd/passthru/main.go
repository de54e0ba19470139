// Command passthru is a CNI plugin that does nothing: the head of the auxiliary
// chain, whose further plugins need something to be chained to (contract 1.1, 1.2).
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/multus-thick/multus/internal/version"
)

func main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(
		skel.CNIFuncs{Add: add, Del: nothing, Check: check, GC: nothing, Status: nothing},
		cniversion.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		version.String("passthru"))
}
