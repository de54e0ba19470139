package gather

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Allocation is what one container has of one resource, or of one claim.
type Allocation struct {
	Container, Resource string
	IDs                 []string
}

// Arrange brings allocations, in whatever order they came, into the promised one: by the
// name of the container, then by id, each id once. Neither the kubelet nor the API
// promises an order, so one that is the same on every call comes from the names.
func Arrange(found []Allocation) map[string][]string {
	type device struct{ container, resource, id string }
	var all []device
	for _, a := range found {
		for _, id := range a.IDs {
			all = append(all, device{a.Container, a.Resource, id})
		}
	}
	slices.SortFunc(all, func(a, b device) int {
		return cmp.Or(cmp.Compare(a.container, b.container), cmp.Compare(a.id, b.id))
	})
	byResource := map[string][]string{}
	for _, d := range all {
		// Containers can share a device, a claim's for one; it counts once.
		if !slices.Contains(byResource[d.resource], d.id) {
			byResource[d.resource] = append(byResource[d.resource], d.id)
		}
	}
	return byResource
}

// Count tells of devices in a message: "intel.com/a (2), intel.com/b (1)".
func Count(byResource map[string][]string) string {
	var parts []string
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", resource, len(byResource[resource])))
	}
	return strings.Join(parts, ", ")
}
