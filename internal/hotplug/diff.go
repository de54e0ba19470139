package hotplug

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Joining is a network that a running pod selects and does not have.
type Joining struct {
	netspec.Selection     // with the name of its interface
	Element           int // of the annotation, from 1
}

// Change is in what a sandbox differs from its pod's annotation.
type Change struct {
	Detach []plan.Attachment // first, in this order
	Attach []Joining
	Wrong  []netspec.Problem // elements that cannot be attached beside the others
}

// Diff compares the elements of a pod's annotation with its sandbox's record. An element
// and an attachment belong together if the network is the same, and the interface where
// the element names one; the attachment stays if the element still asks for the same. An
// attachment whose ADD did not end is made anew. Of records without the element
// (made before the daemon followed annotations) only the network is compared.
func Diff(selections []netspec.Selection, rec attach.Record) Change {
	d := differ{rec: rec, taken: map[string]bool{"lo": true}, of: make([]int, len(selections)), used: map[int]bool{}}
	var c Change
	for i, s := range selections { // those that name their interface have the first choice
		d.of[i] = -1
		if s.Interface == "" {
			continue
		}
		if d.taken[s.Interface] || d.others(s.Interface) {
			c.Wrong = append(c.Wrong, netspec.Problem{
				Element: i + 1, Network: s.Ref().String(), Key: "interface",
				Wrong: fmt.Sprintf("the interface name %q is already that of another network", s.Interface), Right: "a name of its own",
			})
			d.of[i] = wrong
			continue
		}
		d.taken[s.Interface] = true
		d.of[i] = d.named(s)
	}
	for i, s := range selections {
		if s.Interface == "" {
			d.of[i] = d.nameless(s)
		}
	}
	for i := len(rec.Plan.Attachments) - 1; i >= 0; i-- {
		switch a := rec.Plan.Attachments[i]; {
		case a.Role == plan.Secondary && !d.used[i]:
			c.Detach = append(c.Detach, a)
		default:
			d.taken[a.Interface] = true
		}
	}
	for i, s := range selections {
		if d.of[i] == none {
			s.Interface = d.nameFor(s)
			c.Attach = append(c.Attach, Joining{s, i + 1})
		}
	}
	return c
}

// What an element has instead of an attachment.
const (
	none  = -1
	wrong = -2
)

type differ struct {
	rec   attach.Record
	taken map[string]bool // names of interfaces
	of    []int           // the attachment of each element, by index
	used  map[int]bool    // attachments that stay, by index
}

// others tells that an interface belongs to what the pod does not select: its primary
// network, or one of the node.
func (d *differ) others(ifName string) bool {
	return slices.ContainsFunc(d.rec.Plan.Attachments, func(a plan.Attachment) bool {
		return a.Interface == ifName && a.Role != plan.Secondary && a.Role != plan.Plugged && a.Role != plan.Auxiliary
	})
}

// named finds the attachment of an element that names its interface. What /delegate
// attached under that name is its caller's answer to the same annotation.
func (d *differ) named(s netspec.Selection) int {
	return d.use(func(i int, a plan.Attachment) bool {
		return a.Interface == s.Interface && (a.Role == plan.Plugged || d.stays(i, s))
	})
}

// nameless finds the attachment of an element that leaves the name open: one that was
// made for such an element before one that was made for a name.
func (d *differ) nameless(s netspec.Selection) int {
	i := d.use(func(i int, a plan.Attachment) bool {
		return d.stays(i, s) && (a.Selected == nil || a.Selected.Interface == "")
	})
	if i == none {
		i = d.use(func(i int, _ plan.Attachment) bool { return d.stays(i, s) })
	}
	return i
}

func (d *differ) use(fits func(int, plan.Attachment) bool) int {
	for i, a := range d.rec.Plan.Attachments {
		if !d.used[i] && fits(i, a) {
			d.used[i] = true
			return i
		}
	}
	return none
}

// stays tells whether an attachment is what an element asks for.
func (d *differ) stays(i int, s netspec.Selection) bool {
	a := d.rec.Plan.Attachments[i]
	finished := i < len(d.rec.Outcomes) && d.rec.Outcomes[i].Result != nil || d.rec.Origin != attach.Ours
	return a.Role == plan.Secondary && finished && a.Network == s.Ref().String() && (a.Selected == nil || a.Selected.AsksTheSame(s))
}

// nameFor is the name of the interface of an element that is to be attached: its own;
// that of an attachment of the same network that it takes the place of; else one that is
// made from the network's name, and so does not depend on the other elements.
func (d *differ) nameFor(s netspec.Selection) string {
	if s.Interface != "" {
		return s.Interface
	}
	for i, a := range d.rec.Plan.Attachments {
		leaves := a.Role == plan.Secondary && !d.used[i] && !d.taken[a.Interface]
		if leaves && a.Network == s.Ref().String() && (a.Selected == nil || a.Selected.Interface == "") {
			d.taken[a.Interface] = true
			return a.Interface
		}
	}
	for n := 0; ; n++ {
		name := madeName(s.Ref(), n)
		if !d.taken[name] {
			d.taken[name] = true
			return name
		}
	}
}

// madeName is the name of the nth interface on a network whose element names none.
func madeName(network netspec.Ref, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s#%d", network, n))
	return fmt.Sprintf("net%x", sum[:5])
}

// unknown names a secondary network of a record of which only the CNI network's name is
// known: Multus v4 left it, and whether the pod still selects it cannot be told.
func unknown(rec attach.Record) string {
	i := slices.IndexFunc(rec.Plan.Attachments, func(a plan.Attachment) bool {
		return a.Role == plan.Secondary && !strings.Contains(a.Network, "/")
	})
	if i < 0 {
		return ""
	}
	return rec.Plan.Attachments[i].Network
}
