package plan

import (
	"fmt"
	"net/netip"

	"github.com/multus-thick/multus/internal/netspec"
)

// routes turns the elements' default-route keys into one wish for each attachment
// (contract 1.6): a gateway makes its attachment the only holder of a default
// route of its family; an empty list leaves the attachment's own default routes
// and takes those of the others. Of each family the pod has one gateway.
func (b *builder) routes(all []Attachment, networks []network) {
	holder := map[string]*Attachment{} // by family
	for i, a := range b.beside {
		for _, gw := range a.Routes.Gateways {
			holder[family(gw)] = &b.beside[i]
		}
	}
	for i, n := range networks {
		if n.selected == nil || n.misread || n.selected.DefaultRoute == nil {
			continue
		}
		all[i].Routes.Own = len(*n.selected.DefaultRoute) == 0
		for _, gw := range *n.selected.DefaultRoute {
			all[i].Routes.Gateways = append(all[i].Routes.Gateways, gw)
			if first := holder[family(gw)]; first != nil {
				wrong := fmt.Sprintf("found an %s gateway, and %s has one too", family(gw), describe(*first))
				if first == &all[i] {
					wrong = fmt.Sprintf("found more than one %s gateway", family(gw))
				}
				b.problem(netspec.Problem{Element: n.element, Network: n.name, Key: "default-route", Wrong: wrong, Right: "one gateway of each family in the whole pod"})
				continue
			}
			holder[family(gw)] = &all[i]
		}
	}
	ShareRoutes(all)
}

// ShareRoutes says of each attachment of a pod which of its default routes go, from what
// all of them wish.
func ShareRoutes(all []Attachment) {
	var own, v4, v6 bool
	for _, a := range all {
		own = own || a.Routes.Own // it keeps its own default routes
		for _, gw := range a.Routes.Gateways {
			v4, v6 = v4 || family(gw) == "IPv4", v6 || family(gw) == "IPv6"
		}
	}
	for i := range all {
		wish := &all[i].Routes
		wish.DropV4 = v4 || own && !wish.Own
		wish.DropV6 = v6 || own && !wish.Own
	}
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}
