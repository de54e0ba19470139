package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
)

// Refusal is everything that is wrong with a pod's request, found before anything ran.
type Refusal struct {
	Pod      Pod
	Problems []netspec.Problem
	// Later says that the request itself is right, and only the node's own networks
	// are not there: lost, or not there yet.
	Later bool
}

// Refused finds in err the refusal of a request that is wrong, which the pod's owner is
// told; nil for any other trouble, the node's own included.
func Refused(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) && !refusal.Later {
		return refusal
	}
	return nil
}

// CNICode is CNI's "invalid network configuration", or "try again later" where only
// the node's own networks are missing (design, rule 6).
func (r *Refusal) CNICode() uint {
	if r.Later {
		return types.ErrTryAgainLater
	}
	return types.ErrInvalidNetworkConfig
}

// mostLines is how many problems a Refusal tells: a pod can make as many mistakes as
// its annotation has bytes, and the text goes into logs and to the runtime.
const mostLines = 20

// Error has one line for each problem, each naming the pod, up to mostLines.
func (r *Refusal) Error() string {
	var lines []string
	for _, p := range r.Problems[:min(len(r.Problems), mostLines)] {
		lines = append(lines, fmt.Sprintf("pod %s: %s", r.Pod, p))
	}
	if more := len(r.Problems) - mostLines; more > 0 {
		lines = append(lines, fmt.Sprintf("pod %s: and %d mistakes more", r.Pod, more))
	}
	return strings.Join(lines, "\n")
}

// builder holds the inputs and the findings of one Build.
type builder struct {
	cfg      *config.Config
	call     Call
	pod      Subject
	facts    Facts
	problems []netspec.Problem
	absent   int // how many of the problems are networks of the node that are not there
	warnings []string
	size     int // of the definitions' configurations, in bytes
	// optional are the elements that the pod may start without; leftOut says why it does.
	optional map[int]bool
	leftOut  map[int][]netspec.Problem
	// beside are the attachments that a running pod has already.
	beside []Attachment
}

func (b *builder) problem(p netspec.Problem) { b.problems = append(b.problems, p) }

// Build makes the plan. Its error is a *Refusal with all that is wrong.
func Build(cfg *config.Config, call Call, pod Subject, facts Facts) (*Plan, error) {
	b := &builder{cfg: cfg, call: call, pod: pod, facts: facts}
	p, err := b.plan(b.networks())
	if left := b.dispensable(); len(left) > 0 { // without them the others may be planned otherwise
		b = &builder{cfg: cfg, call: call, pod: pod, facts: facts, leftOut: left}
		p, err = b.plan(b.networks())
	}
	return p, err
}

// plan plans networks, each of which has its interface's name.
func (b *builder) plan(networks []network) (*Plan, error) {
	devices := b.devices(networks)
	p := &Plan{Version: Version, Pod: b.pod.Pod}
	for i, n := range networks {
		a := Attachment{Role: n.role, Network: n.name, Element: n.element, Interface: n.ifName, Resource: n.resource, DeviceID: devices[i], Claim: b.claimed(devices[i]), Optional: b.optional[n.element]}
		if b.cfg.Hotplug && n.element > 0 {
			asked := *n.selected
			asked.Extensions, asked.Unknown = nil, nil // what nobody is asked for
			a.Selected = &asked
		}
		if !n.broken {
			b.request(&a, n)
		}
		p.Attachments = append(p.Attachments, a)
	}
	b.collisions(p.Attachments, networks)
	b.routes(p.Attachments, networks)
	if len(b.problems) > 0 {
		return nil, &Refusal{Pod: b.pod.Pod, Problems: b.problems, Later: b.absent == len(b.problems)}
	}
	p.Warnings = b.warnings
	return p, nil
}

// dispensable are the problems of optional elements that are well written, by element:
// the pod starts without these networks.
func (b *builder) dispensable() map[int][]netspec.Problem {
	left := map[int][]netspec.Problem{}
	for _, p := range b.problems {
		if b.optional[p.Element] {
			left[p.Element] = append(left[p.Element], p)
		}
	}
	return left
}

// isOptional tells whether the pod may start without a network: only where the daemon
// attaches it late.
func (b *builder) isOptional(s netspec.Selection, element int) bool {
	if !b.cfg.Hotplug {
		return false
	}
	optional, ok := s.Optional()
	if !ok {
		b.problem(netspec.Problem{Element: element, Network: s.Ref().String(), Key: netspec.ExtensionOptional, Wrong: "found " + netspec.Found(s.Extensions[netspec.ExtensionOptional]), Right: "true or false"})
	}
	return optional
}

// networks resolves the networks of the pod in their order: the primary network,
// the node's defaults, the pod's selections, the auxiliary chain (contract 1.4 ADD).
// A network with a problem keeps its place, so that what is said of the others is
// true of them.
func (b *builder) networks() []network {
	all := b.nodeSide()
	if text := b.pod.Annotations[netspec.AnnotationDefaultNetwork]; strings.TrimSpace(text) != "" {
		if n, ok := b.defaultNetwork(text); ok {
			all[0] = n
		}
	}
	selections, problems := netspec.ParseSelections(b.pod.Annotations[netspec.AnnotationNetworks], b.pod.Namespace)
	b.problems = append(b.problems, inAnnotation(problems, netspec.AnnotationNetworks)...)
	misread := map[int]bool{}
	for _, p := range problems {
		misread[p.Element] = true
	}
	b.optional = map[int]bool{}
	for i, s := range selections {
		all = append(all, b.selection(s, i+1, misread[i+1]))
	}
	if n, ok := b.auxiliary(); ok {
		all = append(all, n)
	}
	for i := range all {
		all[i].ifName = b.interfaceName(all[i], i)
	}
	return slices.DeleteFunc(all, func(n network) bool { return b.leftOut[n.element] != nil })
}

// selection resolves one element of the annotation networks. One that is left out is
// not looked at any more, and keeps its place, which gives others their names.
func (b *builder) selection(s netspec.Selection, element int, misread bool) network {
	n := network{role: Secondary, name: s.Ref().String(), selected: &s, element: element, misread: misread}
	if left := b.leftOut[element]; left != nil {
		for _, p := range left {
			b.warnings = append(b.warnings, fmt.Sprintf("pod %s: %s; the network is optional, and the pod starts without it", b.pod.Pod, p))
		}
		return n
	}
	if !misread && b.isOptional(s, element) {
		b.optional[element] = true
	}
	if !s.Named() && !misread {
		b.problem(netspec.Problem{Element: element, Key: netspec.AnnotationNetworks, Wrong: "the network's namespace is not known, for the runtime does not tell the pod's", Right: "the namespace beside the name"})
	}
	if !s.Named() || b.cfg.NamespaceIsolation && b.isolated(s, element, netspec.AnnotationNetworks) {
		n.broken = true
		return n
	}
	return b.selectedNetwork(n, netspec.AnnotationNetworks)
}

// nodeSide is the primary network and the node's further networks. It is never empty.
func (b *builder) nodeSide() []network {
	if b.cfg.ClusterNetwork == "" {
		return b.inlined()
	}
	var all []network
	for i, value := range nodeNetworks(b.cfg, b.pod) {
		key, role := "clusterNetwork", Primary
		if i > 0 {
			key, role = fmt.Sprintf("defaultNetworks[%d]", i-1), Default
		}
		all = append(all, b.nodeNetwork(key, value, role))
	}
	return all
}

// defaultNetwork is the network of the annotation default-network, which takes the
// place of the primary network.
func (b *builder) defaultNetwork(text string) (network, bool) {
	const key = netspec.AnnotationDefaultNetwork
	s, problems := netspec.ParseDefaultNetwork(text, b.cfg.MultusNamespace)
	b.problems = append(b.problems, inAnnotation(problems, key)...)
	if len(problems) > 0 || b.cfg.IsolateDefaultNetwork && b.isolated(s, 0, key, b.cfg.MultusNamespace) {
		return network{}, false
	}
	return b.selectedNetwork(network{role: Primary, name: s.Ref().String(), selected: &s}, key), true
}

// inAnnotation says of each problem in which annotation it is.
func inAnnotation(problems []netspec.Problem, annotation string) []netspec.Problem {
	located := slices.Clone(problems)
	for i, p := range located {
		if p.Key != "" && p.Key != annotation {
			located[i].Wrong = fmt.Sprintf("key %q: %s", p.Key, p.Wrong)
		}
		located[i].Key = annotation
	}
	return located
}

// interfaceName: requested, else the runtime's for the primary network, else
// net<index> (contract 1.6).
func (b *builder) interfaceName(n network, index int) string {
	switch {
	case n.selected != nil && n.selected.Interface != "":
		return n.selected.Interface
	case n.role == Primary:
		return b.call.Interface
	default:
		return fmt.Sprintf("net%d", index)
	}
}

// collisions finds interface names that two attachments of the pod would have.
func (b *builder) collisions(all []Attachment, networks []network) {
	owner := map[string]string{"lo": "the loopback interface"}
	for i, a := range all {
		if networks[i].misread {
			continue
		}
		if first, taken := owner[a.Interface]; taken {
			b.problem(netspec.Problem{
				Element: a.Element, Network: a.Network, Key: "interface",
				Wrong: fmt.Sprintf("the interface name %q is already that of %s", a.Interface, first),
				Right: "a name of its own",
			})
			continue
		}
		owner[a.Interface] = describe(a)
	}
}

func describe(a Attachment) string {
	if a.Element > 0 {
		return fmt.Sprintf("element %d (%s)", a.Element, a.Network)
	}
	return fmt.Sprintf("the %s network %s", a.Role, a.Network)
}
