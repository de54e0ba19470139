package gather

import (
	"context"
	"errors"
	"fmt"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Gatherer fetches facts and builds plans. Files is needed always; the others may
// be nil where there is no cluster (Pods, Networks, Claims) and no kubelet (Devices).
type Gatherer struct {
	Pods     Pods
	Networks Networks
	Devices  Devices
	Claims   Devices
	Files    Files
}

// Plan builds the plan of one ADD. delivered are the pod's annotations as the
// runtime handed them over, nil where it did not. The error is a *plan.Refusal, or
// wraps ErrNotYet where what the plan needs cannot be had now.
func (g *Gatherer) Plan(ctx context.Context, cfg *config.Config, call plan.Call, delivered map[string]string) (*plan.Plan, error) {
	id := plan.PodOf(call.Args)
	pod, err := g.subject(ctx, id, delivered)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", id, err)
	}
	facts, err := g.facts(ctx, cfg, pod, plan.NeedsOf(cfg, pod))
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", id, err)
	}
	return plan.Build(cfg, call, pod, facts)
}

// Join plans one network more for a running pod, as plan.Join does.
func (g *Gatherer) Join(ctx context.Context, cfg *config.Config, call plan.Call, pod plan.Subject, s netspec.Selection, element int, beside []plan.Attachment) (*plan.Plan, error) {
	facts, err := g.facts(ctx, cfg, pod, plan.Needs{NADs: []netspec.Ref{s.Ref()}})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Pod, err)
	}
	return plan.Join(cfg, call, pod, facts, s, element, beside)
}

// subject finds the annotations that count. The API's count where its pod is the
// one the runtime means; the cache is believed unless it lacks the pod, has
// another one of that name, or disagrees with what the runtime delivered. What the
// runtime delivered counts where the API has no say: for a static pod, whose mirror
// may be missing or old, and while the API is away.
func (g *Gatherer) subject(ctx context.Context, id plan.Pod, delivered map[string]string) (plan.Subject, error) {
	if g.Pods == nil || static(delivered) {
		return plan.Subject{Pod: id, Annotations: delivered}, nil
	}
	cached, known := g.Pods.Cached(id.Namespace, id.Name)
	known = known && cached.Is(id)
	if known && agrees(cached, delivered) {
		return named(id, cached), nil
	}
	live, err := g.Pods.Live(ctx, id.Namespace, id.Name)
	switch {
	case err == nil && live.Is(id):
		return named(id, live), nil
	case err == nil:
		return plan.Subject{}, fmt.Errorf("the runtime asks for the pod with UID %s, the API has %s of that name: %w", id.UID, live.UID, ErrNotYet)
	case known && errors.Is(err, ErrNotYet) && selects(cached.Annotations):
		return undecided(id, cached, delivered, err)
	case delivered != nil && errors.Is(err, ErrNotYet):
		return plan.Subject{Pod: id, Annotations: delivered}, nil
	case errors.Is(err, ErrNotFound):
		return plan.Subject{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	default:
		return plan.Subject{}, err
	}
}

// undecided chooses while the API is away and the cache has another selection of
// networks than the runtime delivered. Either may be the older one, and a pod never
// gets less than it asked for: a selection goes before none, and of two neither.
func undecided(id plan.Pod, cached Pod, delivered map[string]string, away error) (plan.Subject, error) {
	if !selects(delivered) {
		return named(id, cached), nil
	}
	return plan.Subject{}, fmt.Errorf("the runtime and the cache know different networks of the pod: %w", away)
}

// named keeps the runtime's UID where it gave one: a static pod's differs from its
// mirror's, and the delegates know the runtime's.
func named(id plan.Pod, pod Pod) plan.Subject {
	if id.UID == "" {
		id.UID = pod.UID
	}
	return plan.Subject{Pod: id, Annotations: pod.Annotations}
}

// annotationConfigHash on the mirror of a static pod is the UID by which the runtime
// knows the pod: it tells the mirror from that of an earlier pod of the name.
const annotationConfigHash = "kubernetes.io/config.hash"

// Is tells whether the API's pod is the one that the runtime means.
func (p Pod) Is(id plan.Pod) bool {
	hash := p.Annotations[annotationConfigHash]
	return id.UID == "" || p.UID == id.UID || p.Static && (hash == "" || hash == id.UID)
}

func static(annotations map[string]string) bool {
	source := annotations[netspec.AnnotationConfigSource]
	return source != "" && source != "api"
}

func agrees(pod Pod, delivered map[string]string) bool {
	return delivered == nil || pod.Annotations[netspec.AnnotationNetworks] == delivered[netspec.AnnotationNetworks] &&
		pod.Annotations[netspec.AnnotationDefaultNetwork] == delivered[netspec.AnnotationDefaultNetwork]
}

// selects tells whether the annotations ask for networks.
func selects(annotations map[string]string) bool {
	return annotations[netspec.AnnotationNetworks] != "" || annotations[netspec.AnnotationDefaultNetwork] != ""
}

// facts answers what the plan needs.
func (g *Gatherer) facts(ctx context.Context, cfg *config.Config, pod plan.Subject, needs plan.Needs) (plan.Facts, error) {
	facts := plan.Facts{NADs: map[netspec.Ref]plan.NAD{}, Paths: map[string]plan.PathFacts{}}
	for _, path := range needs.Paths {
		facts.Paths[path] = ReadPath(g.Files, path, cfg.AuxiliaryCNIChainName)
	}
	for _, ref := range needs.NADs {
		nad, err := g.network(ctx, ref)
		switch {
		case err == nil:
			facts.NADs[ref] = nad
		case !errors.Is(err, ErrNotFound):
			return facts, fmt.Errorf("network %s: %w", ref, err)
		}
	}
	if needs.ConfDir || plan.NeedsFiles(facts.NADs) {
		facts.ConfDir = readFolder(g.Files, cfg.ConfDir, ".conf", ".conflist", ".json")
	}
	if resources := plan.Resources(facts.NADs); len(resources) > 0 {
		var err error
		if facts.Devices, err = g.devices(ctx, pod.Pod, resources); err != nil {
			return facts, err
		}
	}
	return facts, nil
}

func (g *Gatherer) network(ctx context.Context, ref netspec.Ref) (plan.NAD, error) {
	if g.Networks == nil {
		return plan.NAD{}, ErrNotFound
	}
	return g.Networks.Network(ctx, ref)
}
