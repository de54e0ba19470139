package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// allocation is what one container has of one resource.
type allocation struct {
	container, resource string
	ids                 []string
}

// arrange brings allocations, in whatever order they came, into the promised order.
func arrange(found []allocation) map[string][]string {
	type device struct{ container, resource, id string }
	var all []device
	for _, a := range found {
		for _, id := range a.ids {
			all = append(all, device{a.container, a.resource, id})
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

// describe counts the devices: "intel.com/a (2), intel.com/b (1)".
func describe(byResource map[string][]string) string {
	var parts []string
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", resource, len(byResource[resource])))
	}
	return strings.Join(parts, ", ")
}
