package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// moveRoutes gives the pod the default routes that its plan wishes, in one step,
// and edits the recorded results accordingly, so that CHECK and the runtime see
// what is true.
func (a *adding) moveRoutes(ctx context.Context) error {
	change := a.rec.routeChange()
	if change.empty() {
		return nil
	}
	if err := a.displace(ctx, a.rec); err != nil {
		return err
	}
	undo, err := a.Links.Apply(ctx, a.rec.Sandbox.NetNS, change)
	if err != nil {
		return fmt.Errorf("pod %s: default routes: %w", a.rec.Plan.Pod, err)
	}
	a.unroute = undo
	return a.rec.editRoutes()
}

// routeChange is what the attachments' wishes ask for.
func (r Record) routeChange() RouteChange {
	var change RouteChange
	for i, at := range r.Plan.Attachments {
		if r.Outcomes[i].Result == nil {
			continue // an optional network that is not there
		}
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
	return change
}

func (c RouteChange) empty() bool { return len(c.Drop)+len(c.Add) == 0 }

// displace notes the default routes that attachments are about to lose to another one.
// The namespace is looked at, for not every plugin tells of its routes.
func (e *Engine) displace(ctx context.Context, rec Record) error {
	for i, a := range rec.Plan.Attachments {
		if rec.Outcomes[i].Result == nil || len(rec.Outcomes[i].Displaced) > 0 || !a.Routes.DropV4 && !a.Routes.DropV6 {
			continue
		}
		facts, err := e.Links.Facts(ctx, rec.Sandbox.NetNS, a.Interface)
		if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrNoNetNS) {
			continue // a userspace driver has it
		}
		if err != nil {
			return fmt.Errorf("pod %s: default routes: %w", rec.Plan.Pod, err)
		}
		for _, r := range facts.Routes {
			v4 := r.Dst.Addr().Is4()
			if r.Dst.Bits() == 0 && r.GW.IsValid() && (v4 && a.Routes.DropV4 || !v4 && a.Routes.DropV6) && !slices.Contains(a.Routes.Gateways, r.GW) {
				rec.Outcomes[i].Displaced = append(rec.Outcomes[i].Displaced, r)
			}
		}
	}
	return nil
}

// reroute gives a pod the default routes that its attachments now wish: one more may
// take them over, and what the last one took over comes back. It changes rec's outcomes.
func (e *Engine) reroute(ctx context.Context, rec Record) error {
	change := rec.routeChange()
	if err := e.displace(ctx, rec); err != nil {
		return err
	}
	for i := len(rec.Outcomes) - 1; i >= 0; i-- { // of several the first one's stays
		at, out := rec.Plan.Attachments[i], &rec.Outcomes[i]
		var still []Route
		for _, r := range out.Displaced {
			if v4 := r.Dst.Addr().Is4(); v4 && at.Routes.DropV4 || !v4 && at.Routes.DropV6 {
				still = append(still, r)
				continue
			}
			change.Add = append(change.Add, DefaultRoute{Interface: at.Interface, V6: r.Dst.Addr().Is6(), Gateway: r.GW})
		}
		out.Displaced = still
	}
	if change.empty() {
		return nil
	}
	if _, err := e.Links.Apply(ctx, rec.Sandbox.NetNS, change); err != nil {
		return fmt.Errorf("default routes: %w", err)
	}
	return rec.editRoutes()
}

// editRoutes makes the results say what is true after default routes were moved.
func (r Record) editRoutes() error {
	for i, at := range r.Plan.Attachments {
		if r.Outcomes[i].Result == nil {
			continue
		}
		routed, err := editRoutes(r.Outcomes[i].Result, at.Routes)
		if err != nil {
			return r.failure(i, "ADD", err)
		}
		r.Outcomes[i].Routed = routed
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
