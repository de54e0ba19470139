package attach

import (
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// StatusEntries are the elements of the network-status annotation for a sandbox,
// by attachment. An attachment without a result, the auxiliary chain, and what
// another program attached and publishes itself have none.
func StatusEntries(rec Record) [][]netspec.StatusEntry {
	all := make([][]netspec.StatusEntry, len(rec.Plan.Attachments))
	for i, a := range rec.Plan.Attachments {
		result := rec.result(i)
		if result == nil || a.Role == plan.Auxiliary || a.Role == plan.Plugged {
			continue
		}
		entries, err := netspec.Entries(a.Network, a.Interface, result, netspec.EntryOptions{
			Default: a.Role == plan.Primary, Gateways: a.Routes.Gateways, DeviceInfo: rec.Outcomes[i].DeviceInfo,
		})
		if err == nil { // the runner has checked that it is a result
			all[i] = entries
		}
	}
	return all
}
