package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/plan"
)

// planAlone builds a plain pod's plan from what is on the host: the primary network
// and the auxiliary chain.
func (op *operation) planAlone(ctx context.Context, delivered map[string]string) (*plan.Plan, error) {
	call, err := op.Call(op.cfg.RuntimeConfig)
	if err != nil {
		return nil, err
	}
	own, err := op.hostConfig()
	if err != nil {
		return nil, err
	}
	g := gather.Gatherer{Files: gather.OS{}}
	return g.Plan(ctx, own, call, delivered)
}

// hostConfig is the configuration with the primary network as the host sees it.
func (op *operation) hostConfig() (*config.Config, error) {
	own := *op.cfg
	own.DefaultNetworks = nil // a plain pod has none
	if own.Host == nil {
		return &own, nil
	}
	file, snapshot, err := op.primary()
	if err != nil {
		return nil, err
	}
	own.ClusterNetwork = file
	if file == "" {
		own.Delegates = []json.RawMessage{snapshot}
	}
	return &own, nil
}

// primary chooses between the primary network's file and the snapshot of it. The
// file counts where its place is certain: an administrator gave the folder, or the
// folder is the very one that the daemon saw, or the file holds the same network.
// Where the place is certain and the file is gone, nothing may stand in for it.
func (op *operation) primary() (file string, snapshot json.RawMessage, err error) {
	host := op.cfg.Host
	content, err := os.ReadFile(host.PrimaryFile)
	certain := host.Trusted || op.sameFolder()
	switch {
	case host.PrimaryFile != "" && err == nil && (certain || sameNetwork(content, host.Snapshot)):
		return host.PrimaryFile, nil, nil
	case host.PrimaryFile != "" && certain:
		return "", nil, api.WithCode(types.ErrTryAgainLater, fmt.Errorf("the primary network's configuration cannot be read: %w", err))
	case len(host.Snapshot) > 0:
		return "", host.Snapshot, nil
	}
	return "", nil, api.WithCode(types.ErrTryAgainLater, errors.New("the generated configuration names no primary network: the Multus daemon has not found one yet"))
}

// auxiliaryKnown: beside a snapshot of the primary network's file, the folder of the
// auxiliary chain is known to the daemon alone, and no pod goes without its chain.
func (op *operation) auxiliaryKnown() error {
	host := op.cfg.Host
	if op.cfg.AuxiliaryCNIChainName == "" || host == nil || host.PrimaryFile == "" {
		return nil
	}
	file, _, err := op.primary()
	if err == nil && file == "" {
		err = api.WithCode(types.ErrTryAgainLater, fmt.Errorf("the folder of the auxiliary chain %s is known to the Multus daemon alone, which does not answer: set hostCniConfigDir", op.cfg.AuxiliaryCNIChainName))
	}
	return err
}

func (op *operation) sameFolder() bool {
	host := op.cfg.Host
	if host.Folder == nil || host.PrimaryFile == "" {
		return false
	}
	here, err := ledger.PlaceOf(filepath.Dir(host.PrimaryFile), op.BootID)
	return err == nil && here.Device == host.Folder.Device && here.Inode == host.Folder.Inode && here.BootID == host.Folder.BootID
}

func sameNetwork(content, snapshot []byte) bool {
	file, err := cniconf.Parse(content)
	if err != nil {
		return false
	}
	old, err := cniconf.Parse(snapshot)
	return err == nil && file.Name() == old.Name()
}

// primaryConfig is the primary network as this node configures it now.
func (op *operation) primaryConfig(ctx context.Context) (*plan.Plan, error) {
	p, err := op.planAlone(ctx, nil)
	if err != nil {
		return nil, err
	}
	p.Attachments = p.Attachments[:1]
	return p, nil
}

// indicator: while the file that announces a ready primary network is missing, no
// pod is attached.
func (op *operation) indicator() error {
	file := op.cfg.ReadinessIndicatorFile
	if op.cfg.Host != nil && op.cfg.Host.IndicatorFile != "" {
		file = op.cfg.Host.IndicatorFile
	}
	if file == "" {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return api.WithCode(types.ErrTryAgainLater, fmt.Errorf("the primary network is not ready: the readiness indicator file %s is missing: %w", file, err))
	}
	return nil
}
