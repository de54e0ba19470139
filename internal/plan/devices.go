package plan

import (
	"fmt"
	"slices"

	"github.com/multus-thick/multus/internal/netspec"
)

// devices takes one device for each network that names a resource: the requested
// one, else the next that was allocated to the pod. No device is taken twice. The
// result is by index.
func (b *builder) devices(networks []network) []string {
	ids := make([]string, len(networks))
	taken := b.requestedDevices(networks, ids)
	asked, given := map[string]int{}, map[string]int{}
	for i, n := range networks {
		if n.resource == "" || ids[i] != "" || n.misread {
			continue
		}
		all, byClaim := b.facts.Devices.of(n.resource)
		free := slices.IndexFunc(all, func(id string) bool {
			return !slices.ContainsFunc(taken, func(t device) bool { return b.same(t, device{id: id, resource: n.resource, byClaim: byClaim}) })
		})
		asked[n.resource]++
		if free >= 0 {
			ids[i] = all[free]
			taken = append(taken, device{id: ids[i], resource: n.resource, byClaim: byClaim})
			given[n.resource]++
			continue
		}
		b.problem(netspec.Problem{
			Element: n.element, Network: n.name, Key: netspec.AnnotationResourceName,
			Wrong: fmt.Sprintf("found %d devices of the resource %q allocated to the pod, and this attachment takes number %d (%s)", given[n.resource], n.resource, asked[n.resource], b.facts.Devices.Detail),
			Right: "as many devices in the containers' resources as the pod has attachments of the resource",
		})
	}
	return ids
}

// device is one that an attachment takes.
type device struct {
	id, resource string
	byClaim      bool // the resource is the name of a claim
	requested    bool // by its id
}

// same tells whether a device that is taken is the other. Two resources may have devices
// of one id; the name of a claim and a requested id stand for devices that can have
// another resource's name, and another id.
func (b *builder) same(taken, other device) bool {
	if taken.id == other.id && (taken.resource == other.resource || taken.byClaim || taken.requested || other.byClaim) {
		return true
	}
	one, two := b.claimed(taken.id), b.claimed(other.id)
	return one != nil && two != nil && *one == *two
}

// requestedDevices are those that elements request by their ids, which are put where
// they belong, and those that the pod's attachments have already. As in v4 a request goes before the allocation; one that was not allocated
// is said.
func (b *builder) requestedDevices(networks []network, ids []string) []device {
	taken := b.besideDevices()
	for i, n := range networks {
		if n.selected == nil || n.selected.DeviceID == "" {
			continue
		}
		ids[i] = n.selected.DeviceID
		at := netspec.Problem{Element: n.element, Network: n.name, Key: capDeviceID, Right: "a device of its own for each attachment"}
		if n.resource != "" && slices.ContainsFunc(taken, func(d device) bool { return d.id == ids[i] && d.resource == n.resource }) {
			at.Wrong = fmt.Sprintf("another attachment has the device %q too", ids[i])
			b.problem(at)
		}
		if all, _ := b.facts.Devices.of(n.resource); n.resource != "" && !slices.Contains(all, ids[i]) {
			at.Wrong = fmt.Sprintf("the requested device %q of the resource %q is not allocated to the pod, and may be another's (%s)", ids[i], n.resource, b.facts.Devices.Detail)
			at.Right = "no request, or an allocated device"
			b.warn(at)
		}
		taken = append(taken, device{id: ids[i], resource: n.resource, requested: true})
	}
	return taken
}

// besideDevices are those of the attachments that the pod has already.
func (b *builder) besideDevices() []device {
	var taken []device
	for _, a := range b.beside {
		if a.DeviceID != "" {
			_, byClaim := b.facts.Devices.of(a.Resource)
			taken = append(taken, device{id: a.DeviceID, resource: a.Resource, byClaim: byClaim, requested: a.Resource == ""})
		}
	}
	return taken
}

// claimed is the claim's device behind an id, nil where it is none's, or not known.
func (b *builder) claimed(id string) *Claimed {
	if c, ok := b.facts.Devices.Claimed[id]; ok {
		return &c
	}
	return nil
}
