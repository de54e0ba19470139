package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// defaultInterface is what runtimes call the primary network's interface.
const defaultInterface = "eth0"

// attach gives a stray the networks that a running pod can get, as its ADD would have. The
// primary network is the runtime's and stays as it is. What has been attached already
// answers with its recorded result, so that a second try does only the rest.
func (s *strays) attach(ctx context.Context, x *suspect, life audit.Life) error {
	id := x.pod.Pod
	if hash := x.pod.Annotations[annotationConfigHash]; x.pod.Static && hash != "" {
		id.UID = hash
	}
	sb, err := s.runtime.Sandbox(ctx, id.UID)
	if err != nil {
		return err
	}
	standing, err := s.standing()
	if err != nil {
		return err
	}
	cfg, err := s.planConfig(ctx, standing)
	if err != nil {
		return err
	}
	p, err := s.gatherer.Plan(ctx, cfg, plan.Call{
		ContainerID: sb.ContainerID, NetNS: sb.NetNS, Interface: defaultInterface,
		Args: []plan.Arg{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", id.Namespace},
			{"K8S_POD_NAME", id.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", sb.ContainerID},
			{"K8S_POD_UID", id.UID},
		},
	}, nil)
	if err != nil {
		return err
	}
	late, refused := audit.Late(*p)
	if x.pod.Annotations[netspec.AnnotationDefaultNetwork] != "" {
		refused = append(refused, p.Attachments[0].Network+" (its default network)")
	}
	entries, err := s.plug(ctx, sb, *p, late)
	x.healing = err != nil && (x.healing || len(entries) > 0)
	if len(entries) > 0 {
		s.status(x, life, entries...) //nolint:contextcheck // the publisher's own, which run was given
	}
	if err != nil {
		return err
	}
	if x.exempt = len(late) == 0; !x.exempt { // else there is no record, and all is said
		delete(s.suspects, x.pod.UID)
	}
	if len(refused) > 0 {
		message := "it cannot get late: " + strings.Join(refused, ", ")
		s.Cluster.Warn(x.pod.Pod, ReasonStrayLeft, "The pod must be made anew for what "+message)
		s.report(ctx, x, message)
		return nil
	}
	s.healed(ctx, x)
	return nil
}

// plug attaches, and tells what there is to say of what it attached in the pod's status.
func (s *strays) plug(ctx context.Context, sb attach.Sandbox, p plan.Plan, late []plan.Attachment) ([]netspec.StatusEntry, error) {
	var all []netspec.StatusEntry
	for _, a := range late {
		result, err := s.engine.Plug(ctx, sb, p.Pod, a)
		if err != nil {
			return all, err
		}
		s.recordedNow(p.Pod, sb.ContainerID)
		entries, err := netspec.Entries(a.Network, a.Interface, result, netspec.EntryOptions{})
		if err != nil {
			return all, fmt.Errorf("pod %s: %w", p.Pod, err)
		}
		all = append(all, entries...)
		s.Cluster.Added(p.Pod, a.Interface, netspec.Addresses(result), a.Network)
	}
	return all, nil
}

// annotationConfigHash on a static pod is the UID by which the runtime knows it.
const annotationConfigHash = "kubernetes.io/config.hash"
