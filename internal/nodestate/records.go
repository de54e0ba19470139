package nodestate

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/netns"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Record is what is recorded of a sandbox, without configurations.
type Record struct {
	Sandbox string `json:"sandbox"`
	// Damaged says why the record cannot be read; the rest is empty then.
	Damaged string       `json:"damaged,omitempty"`
	Pod     plan.Pod     `json:"pod,omitzero"`
	State   attach.State `json:"state,omitempty"`
	// Origin is "v4" for what Multus v4 recorded.
	Origin attach.Origin `json:"origin,omitempty"`
	NetNS  string        `json:"netns,omitempty"`
	// Gone says that the network namespace does not exist any more.
	Gone        bool         `json:"gone,omitempty"`
	Created     time.Time    `json:"created"`
	Changed     time.Time    `json:"changed"`
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Attachment is one network of a sandbox.
type Attachment struct {
	Network   string    `json:"network"`
	Interface string    `json:"interface"`
	Role      plan.Role `json:"role"`
	// Config is the name of the network's configuration.
	Config    string   `json:"config"`
	Plugins   []string `json:"plugins"`
	Addresses []string `json:"addresses,omitempty"`
	DeviceID  string   `json:"deviceID,omitempty"`
	// Detached says that it has been given back; Refused that the pod never had it.
	Detached bool `json:"detached,omitempty"`
	Refused  bool `json:"refused,omitempty"`
}

// ReadRecords reads the ledger, sorted by pod. One record that cannot be read is an
// element; a ledger that cannot is an error.
func ReadRecords(p Paths) ([]Record, error) {
	records := ledger.New(p.CNIDir, "") // the boot id is for writing
	listed, err := records.All()
	if err != nil {
		return nil, err
	}
	all := make([]Record, 0, len(listed))
	for _, l := range listed {
		switch {
		case errors.Is(l.Err, attach.ErrNoRecord): // deleted since
			continue
		case l.Err != nil:
			all = append(all, Record{Sandbox: l.ContainerID, Damaged: l.Err.Error(), Changed: changed(p, l.ContainerID)})
		default:
			all = append(all, p.record(l.Record, changed(p, l.ContainerID)))
		}
	}
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(strings.Compare(a.Pod.String(), b.Pod.String()), strings.Compare(a.Sandbox, b.Sandbox))
	})
	return all, nil
}

func changed(p Paths, id string) time.Time {
	info, err := os.Stat(filepath.Join(p.CNIDir, id))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (p Paths) record(rec attach.Record, changed time.Time) Record {
	r := Record{
		Sandbox: rec.Sandbox.ContainerID, Pod: rec.Plan.Pod, State: rec.State, Origin: rec.Origin,
		NetNS: rec.Sandbox.NetNS, Gone: netns.Gone(p.Root, rec.Sandbox.NetNS), Created: rec.Created, Changed: changed,
	}
	if r.Created.IsZero() { // v4 did not keep it, and never wrote twice
		r.Created = changed
	}
	for i, a := range rec.Plan.Attachments {
		told := Attachment{Network: a.Network, Interface: a.Interface, Role: a.Role, Config: a.Config.Name(), DeviceID: a.DeviceID}
		for _, plugin := range a.Config.Plugins() {
			told.Plugins = append(told.Plugins, plugin.Type)
		}
		if i < len(rec.Outcomes) {
			o := rec.Outcomes[i]
			told.Addresses, told.Detached, told.Refused = netspec.Addresses(o.Result), o.Detached, o.Refused != ""
		}
		r.Attachments = append(r.Attachments, told)
	}
	return r
}
