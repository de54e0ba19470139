package cnirun

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/multus-thick/multus/internal/cniconf"
)

// resultAs checks that raw is a CNI result and gives it in the wanted version: as
// it came where it has that version, unknown keys included, else converted. A
// result without a version has the configuration's, as plugins that are older than
// the key expect.
func resultAs(version string, raw []byte) (json.RawMessage, error) {
	obj, err := cniconf.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	var has string
	if v, ok := obj.Get("cniVersion"); ok {
		if err := json.Unmarshal(v, &has); err != nil {
			return nil, fmt.Errorf("has a key \"cniVersion\" of the wrong type: %w", err)
		}
	}
	if has == "" {
		has, obj = version, obj.With("cniVersion", cniconf.Quote(version))
	}
	result, err := create.Create(has, obj.Bytes())
	if err != nil {
		return nil, err
	}
	if has == version {
		return obj.Bytes(), nil
	}
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, fmt.Errorf("has CNI version %s, which does not convert to the configuration's %s: %w", has, version, err)
	}
	return json.Marshal(converted)
}
