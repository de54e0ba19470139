package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// moveRoutes gives the pod the default routes that its plan wishes, in one step,
// and edits the recorded results accordingly, so that CHECK and the runtime see
// what is true.
func (a *adding) moveRoutes(ctx context.Context) error {
	var change RouteChange
	for _, at := range a.rec.Plan.Attachments {
		if at.Routes.DropV4 {
			change.Drop = append(change.Drop, DefaultRoute{Interface: at.Interface})
		}
		if at.Routes.DropV6 {
			change.Drop = append(change.Drop, DefaultRoute{Interface: at.Interface, V6: true})
		}
		for _, gw := range at.Routes.Gateways {
			gw = gw.Unmap()
			change.Add = append(change.Add, DefaultRoute{Interface: at.Interface, V6: !gw.Is4(), Gateway: gw})
		}
	}
	if len(change.Drop)+len(change.Add) == 0 {
		return nil
	}
	undo, err := a.Links.Apply(ctx, a.rec.Sandbox.NetNS, change)
	if err != nil {
		return fmt.Errorf("pod %s: default routes: %w", a.rec.Plan.Pod, err)
	}
	a.unroute = undo
	for i, at := range a.rec.Plan.Attachments {
		routed, err := editRoutes(a.rec.Outcomes[i].Result, at.Routes)
		if err != nil {
			return a.rec.failure(i, "ADD", err)
		}
		a.rec.Outcomes[i].Routed = routed
	}
	return nil
}

// mainTable is the number of the routing table that routes without one go to.
const mainTable = 254

// editRoutes takes default routes out of a CNI result and adds the wished ones,
// leaving the rest of it as it is; nil where nothing is wished. The routes of
// results before CNI 0.3.0 sit elsewhere; such a result stays unchanged.
func editRoutes(result json.RawMessage, wish plan.RouteWish) (json.RawMessage, error) {
	if !wish.DropV4 && !wish.DropV6 && len(wish.Gateways) == 0 {
		return nil, nil
	}
	obj, err := cniconf.ParseObject(result)
	if err != nil {
		return nil, fmt.Errorf("the network's result %w", err)
	}
	if _, old := obj.Get("ip4"); old {
		return result, nil
	}
	var routes, kept []cniconf.Object
	if raw, ok := obj.Get("routes"); ok {
		if err := json.Unmarshal(raw, &routes); err != nil {
			return nil, fmt.Errorf("the network's result has routes of the wrong type: %w", err)
		}
	}
	for _, r := range routes {
		if v6, isDefault := defaultFamily(r); isDefault && (v6 && wish.DropV6 || !v6 && wish.DropV4) {
			continue
		}
		kept = append(kept, r)
	}
	for _, gw := range wish.Gateways {
		dst := "0.0.0.0/0"
		if gw.Unmap().Is6() {
			dst = "::/0"
		}
		kept = append(kept, cniconf.Object{}.With("dst", cniconf.Quote(dst)).With("gw", cniconf.Quote(gw.Unmap().String())))
	}
	if len(kept) == 0 {
		return obj.Without("routes").Bytes(), nil
	}
	return obj.With("routes", cniconf.Quote(kept)).Bytes(), nil
}

// defaultFamily tells whether a route of a CNI result is a default route, in any
// spelling ("::0/0" too), and of which family. A route of a table of its own is not.
func defaultFamily(route cniconf.Object) (v6, isDefault bool) {
	if raw, ok := route.Get("table"); ok && string(raw) != strconv.Itoa(mainTable) {
		return false, false
	}
	var dst string
	raw, _ := route.Get("dst")
	if err := json.Unmarshal(raw, &dst); err != nil {
		return false, false
	}
	prefix, err := netip.ParsePrefix(dst)
	return prefix.Addr().Is6(), err == nil && prefix.Bits() == 0
}
