package attach

import (
	"context"
	"encoding/json"

	"github.com/multus-thick/multus/internal/plan"
)

// runAdd runs the plugins of an attachment. info is what they and the device plugin say
// of its device: for people and for network-status, so that trouble with it fails nothing.
func (e *Engine) runAdd(ctx context.Context, a Attachment) (result, info json.RawMessage, err error) {
	if e.DeviceInfo == nil || a.DeviceInfoFile == "" {
		result, err = e.Runner.Add(ctx, a)
		return result, nil, err
	}
	unsaid := func(err error) {
		if err != nil {
			e.Log.Warn("the device-info of an attachment is not complete", "sandbox", a.Sandbox.ContainerID, "network", a.Network, "error", err)
		}
	}
	unsaid(e.DeviceInfo.Begin(a.DeviceInfoFile, a.Resource, a.DeviceID))
	if result, err = e.Runner.Add(ctx, a); err != nil {
		return nil, nil, err
	}
	info, readErr := e.DeviceInfo.Read(a.DeviceInfoFile)
	unsaid(readErr)
	return result, info, nil
}

// runDel runs the plugins of an attachment and removes what was said of its device, once
// they have succeeded.
func (e *Engine) runDel(ctx context.Context, a Attachment, prev json.RawMessage) error {
	err := e.Runner.Del(ctx, a, prev)
	file := a.DeviceInfoFile
	if file == "" && a.DeviceID != "" { // a record of Multus v4
		file = plan.DeviceInfoFile(a.Network, a.Sandbox.ContainerID, a.Interface)
	}
	if e.DeviceInfo == nil || file == "" || err != nil && !alreadyGone(err) {
		return err
	}
	if err := e.DeviceInfo.Remove(file); err != nil {
		e.Log.Warn("the device-info of an attachment stays", "sandbox", a.Sandbox.ContainerID, "network", a.Network, "error", err)
	}
	return err
}
