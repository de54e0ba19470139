package gather

import (
	"context"
	"fmt"
	"maps"

	"github.com/multus-thick/multus/internal/plan"
)

// devices asks for the devices of resources: the kubelet first, and the API where the
// kubelet allocated none of some resource, which may be a claim's then.
func (g *Gatherer) devices(ctx context.Context, pod plan.Pod, resources []string) (plan.Devices, error) {
	if g.Devices == nil {
		return plan.Devices{Detail: "no kubelet to ask here"}, nil
	}
	found, err := g.Devices.Devices(ctx, pod)
	if err != nil {
		return plan.Devices{}, fmt.Errorf("its devices: %w", err)
	}
	if g.Claims == nil || len(without(resources, found.ByResource)) == 0 {
		return found, nil
	}
	claimed, err := g.Claims.Devices(ctx, pod)
	switch {
	case err == nil:
		return joined(found, claimed), nil
	case len(without(resources, found.ByResource, found.ByClaim)) == 0:
		// As with Multus v4.3, whose role may not read claims.
		found.Detail += fmt.Sprintf("; its claims cannot be read: %v", err)
		return found, nil
	}
	return plan.Devices{}, fmt.Errorf("its devices: %s; %w", found.Detail, err)
}

// without are the resources that have no devices in any of the maps.
func without(resources []string, devices ...map[string][]string) []string {
	var missing []string
	for _, resource := range resources {
		var has bool
		for _, d := range devices {
			has = has || len(d[resource]) > 0
		}
		if !has {
			missing = append(missing, resource)
		}
	}
	return missing
}

// joined adds what claims tell to what the kubelet tells. A resource of the name is
// either a device plugin's on a node or a DRA driver's.
func joined(kubelet, claims plan.Devices) plan.Devices {
	all := plan.Devices{
		ByResource: maps.Clone(claims.ByResource), ByClaim: kubelet.ByClaim,
		Claimed: maps.Clone(kubelet.Claimed), Detail: kubelet.Detail + "; " + claims.Detail,
	}
	if all.ByResource == nil {
		all.ByResource = map[string][]string{}
	}
	if all.Claimed == nil {
		all.Claimed = map[string]plan.Claimed{}
	}
	maps.Copy(all.ByResource, kubelet.ByResource)
	maps.Copy(all.Claimed, claims.Claimed)
	return all
}
