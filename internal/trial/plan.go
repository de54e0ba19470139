package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// Planned is the plan of one pod, or what is wrong with it. Its JSON form is stable
// (docs/try.md).
type Planned struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Plan      *plan.Plan   `json:"plan,omitempty"`
	Error     *types.Error `json:"error,omitempty"`
}

// String is "namespace/name".
func (p Planned) String() string { return p.Namespace + "/" + p.Name }

// Plan plans all pods of a folder as its node would, and runs nothing. Of the programs
// it needs none; a plugin that is missing is a warning of the plan.
func Plan(ctx context.Context, f *Folder, o Options) (all []Planned, err error) {
	dir, err := os.MkdirTemp("", "multusctl-plan-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := layout{dir}
	settings := l.settings(f, o.Plugins[0])
	if err := l.write(f, settings); err != nil {
		return nil, err
	}
	if _, given := settings.Get("clusterNetwork"); !given {
		settings = settings.With("clusterNetwork", cniconf.Quote(l.primary(f)))
	}
	cfg, _, err := config.Parse(settings.Bytes()) // Read gave the warnings
	if err != nil {
		return nil, err
	}
	g := gather.Gatherer{Pods: f, Networks: f, Files: gather.OS{}}
	for _, pod := range f.Pods() {
		sb := sandbox(pod)
		annotations := delivered(pod.Annotations)
		call := plan.Call{
			ContainerID: sb.ContainerID, NetNS: sb.NetNS, Interface: primaryInterface,
			Args:          []plan.Arg{{"K8S_POD_NAMESPACE", sb.Namespace}, {"K8S_POD_NAME", sb.Name}, {"K8S_POD_UID", sb.UID}},
			RuntimeConfig: map[string]json.RawMessage{config.PodAnnotationsCapability: cniconf.Quote(annotations)},
		}
		planned, err := g.Plan(ctx, cfg, call, annotations)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pod %s: %w", sb, err)
		}
		if err == nil {
			planned.Warnings = append(planned.Warnings, o.missing(planned)...)
		}
		all = append(all, Planned{Namespace: pod.Namespace, Name: pod.Name, Plan: planned, Error: api.CNIError(err)})
	}
	return all, nil
}

// missing finds the plugins of a plan that are in none of the folders.
func (o Options) missing(p *plan.Plan) (warnings []string) {
	for _, a := range p.Attachments {
		for _, plugin := range a.Config.Plugins() {
			raw, _ := plugin.Object().Get("ipam")
			var ipam struct{ Type string }
			_ = json.Unmarshal(raw, &ipam) // the plugin itself will tell what is wrong with it
			for _, name := range []string{plugin.Type, ipam.Type} {
				if _, err := invoke.FindInPath(name, o.Plugins); name != "" && err != nil {
					warnings = append(warnings, fmt.Sprintf("network %s: the plugin %q is not in %s", a.Network, name, strings.Join(o.Plugins, " or ")))
				}
			}
		}
	}
	return warnings
}
