package devices

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/multus-thick/multus/internal/gather"
)

// checkpointFile is the part of the device manager's checkpoint that matters here.
type checkpointFile struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID        string
			ContainerName string
			ResourceName  string
			DeviceIDs     checkpointIDs
		}
	}
}

// checkpointIDs are ids by NUMA node; before Kubernetes 1.20 a plain list.
type checkpointIDs []string

func (ids *checkpointIDs) UnmarshalJSON(raw []byte) error {
	var byNode map[string][]string
	if json.Unmarshal(raw, &byNode) != nil {
		return json.Unmarshal(raw, (*[]string)(ids))
	}
	for _, of := range byNode {
		*ids = append(*ids, of...)
	}
	return nil
}

// fromCheckpoint finds a pod's devices. The file knows pods by their UID only.
func fromCheckpoint(path, uid string) ([]gather.Allocation, error) {
	if uid == "" {
		return nil, fmt.Errorf("checkpoint %s knows pods by UID, and the UID of this one is not known", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var file checkpointFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("checkpoint %s is not what the kubelet writes: %w", path, err)
	}
	var found []gather.Allocation
	for _, e := range file.Data.PodDeviceEntries {
		if e.PodUID == uid {
			found = append(found, gather.Allocation{Container: e.ContainerName, Resource: e.ResourceName, IDs: e.DeviceIDs})
		}
	}
	return found, nil
}
