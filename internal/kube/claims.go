package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Attributes by which a device of a ResourceSlice says what it is to a network
// (contract 1.5).
const (
	attributeResource = "k8s.cni.cncf.io/resourceName"
	attributeDevice   = "k8s.cni.cncf.io/deviceID"
)

// claimTimeout bounds all that is read for one pod's claims (contract 1.15).
const claimTimeout = 20 * time.Second

const resourceAPI = "/apis/resource.k8s.io/v1"

// Claims finds the devices that resource claims (DRA, resource.k8s.io/v1) gave to pods:
// those of the pod's own claims, and of the claim that the scheduler made for extended
// resources. It implements gather.Devices.
type Claims struct{ *Client }

// Devices is gather.Devices's. A device's resource and id are the attributes that its
// driver published; one without an id is no network's and is left out, one without a
// resource is of the extended resource that it was given for.
func (c Claims) Devices(ctx context.Context, pod plan.Pod) (plan.Devices, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	p, err := c.podOf(ctx, pod)
	if err != nil {
		return plan.Devices{}, fmt.Errorf("the resource claims of pod %s: %w", pod, err)
	}
	uses := p.uses()
	if len(uses) == 0 {
		return plan.Devices{Detail: "it has no resource claim"}, nil
	}
	found := finding{
		api: c, node: p.Spec.NodeName, namespace: pod.Namespace,
		claims: map[string]resourceClaim{}, slices: map[string][]resourceSlice{}, devices: map[string]plan.Claimed{},
	}
	for _, use := range uses {
		if err := found.add(ctx, use); err != nil {
			return plan.Devices{}, fmt.Errorf("pod %s: resource claim %s: %w", pod, use.claim, err)
		}
	}
	byResource := gather.Arrange(found.allocations)
	told := []string{fmt.Sprintf("its resource claims have: %s", cmp.Or(gather.Count(byResource), "no device for a network"))}
	return plan.Devices{ByResource: byResource, Claimed: found.devices, Detail: strings.Join(append(told, found.remarks...), "; ")}, nil
}

// claimPod is the part of a pod that speaks of claims.
type claimPod struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeName       string           `json:"nodeName"`
		InitContainers []claimContainer `json:"initContainers"`
		Containers     []claimContainer `json:"containers"`
		ResourceClaims []struct {
			Name              string `json:"name"`
			ResourceClaimName string `json:"resourceClaimName"`
		} `json:"resourceClaims"`
	} `json:"spec"`
	Status struct {
		ResourceClaimStatuses []struct {
			Name              string `json:"name"`
			ResourceClaimName string `json:"resourceClaimName"`
		} `json:"resourceClaimStatuses"`
		ExtendedResourceClaimStatus *struct {
			ResourceClaimName string `json:"resourceClaimName"`
			RequestMappings   []struct {
				ContainerName string `json:"containerName"`
				ResourceName  string `json:"resourceName"`
				RequestName   string `json:"requestName"`
			} `json:"requestMappings"`
		} `json:"extendedResourceClaimStatus"`
	} `json:"status"`
}

type claimContainer struct {
	Name      string `json:"name"`
	Resources struct {
		Claims []struct {
			Name    string `json:"name"`
			Request string `json:"request"`
		} `json:"claims"`
	} `json:"resources"`
}

// use is what a container uses of a claim.
type use struct {
	claim     string // the claim object's name
	container string // "~", which comes after all containers, for a claim that none names
	request   string // of the claim; empty for all
	extended  string // the extended resource that it stands for; empty for none
}

// podOf reads the pod, which must be the one that the runtime means. A static pod cannot
// have claims.
func (c Claims) podOf(ctx context.Context, pod plan.Pod) (claimPod, error) {
	var p claimPod
	err := c.read(ctx, "pods", &p, "", "/api/v1/namespaces", pod.Namespace, "pods", pod.Name)
	if source := p.Metadata.Annotations[netspec.AnnotationConfigSource]; source != "" && source != "api" {
		return claimPod{}, err
	}
	if err == nil && pod.UID != "" && p.Metadata.UID != pod.UID {
		err = fmt.Errorf("the API has the UID %s of that name, not %s: %w", p.Metadata.UID, pod.UID, gather.ErrNotYet)
	}
	return p, err
}

// uses lists what the pod's containers use of which claims.
func (p claimPod) uses() []use {
	names := map[string]string{} // of claim objects, by their name in the pod
	for _, c := range p.Spec.ResourceClaims {
		names[c.Name] = c.ResourceClaimName
	}
	for _, c := range p.Status.ResourceClaimStatuses { // made from templates
		names[c.Name] = cmp.Or(c.ResourceClaimName, names[c.Name])
	}
	var all []use
	named := map[string]bool{}
	for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, c := range container.Resources.Claims {
			named[c.Name] = true
			all = append(all, use{claim: names[c.Name], container: container.Name, request: c.Request})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !named[name] {
			all = append(all, use{claim: names[name], container: "~"})
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, m := range extended.RequestMappings {
			all = append(all, use{claim: extended.ResourceClaimName, container: m.ContainerName, request: m.RequestName, extended: m.ResourceName})
		}
	}
	// A template's claim that needs no object has no name.
	return slices.DeleteFunc(all, func(u use) bool { return u.claim == "" })
}

// resourceClaim is the part of a claim that says what it was given.
type resourceClaim struct {
	Status struct {
		Allocation *struct {
			Devices struct {
				Results []allocated `json:"results"`
			} `json:"devices"`
		} `json:"allocation"`
	} `json:"status"`
}

type allocated struct {
	Request string `json:"request"` // with a subrequest behind a slash
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
}

// resourceSlice is the part of a slice that says what its devices are.
type resourceSlice struct {
	Spec struct {
		Pool struct {
			Name       string `json:"name"`
			Generation int64  `json:"generation"`
		} `json:"pool"`
		Devices []sliceDevice `json:"devices"`
	} `json:"spec"`
}

type sliceDevice struct {
	Name       string `json:"name"`
	Attributes map[string]struct {
		String *string `json:"string"`
	} `json:"attributes"`
}

func (d sliceDevice) text(attribute string) string {
	if value := d.Attributes[attribute].String; value != nil {
		return *value
	}
	return ""
}

// finding is what is known of a pod's claims so far.
type finding struct {
	api             Claims
	node, namespace string
	claims          map[string]resourceClaim   // by name
	slices          map[string][]resourceSlice // by driver
	allocations     []gather.Allocation
	devices         map[string]plan.Claimed
	remarks         []string
}

// add finds the devices of one use.
func (f *finding) add(ctx context.Context, u use) error {
	claim, known := f.claims[u.claim]
	if !known {
		if err := f.api.read(ctx, "resourceclaims", &claim, "", resourceAPI, "namespaces", f.namespace, "resourceclaims", u.claim); err != nil {
			return err
		}
		f.claims[u.claim] = claim
	}
	if claim.Status.Allocation == nil {
		f.remark("resource claim %s is not allocated", u.claim)
		return nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if request, _, _ := strings.Cut(result.Request, "/"); u.request != "" && u.request != request && u.request != result.Request {
			continue
		}
		device, err := f.device(ctx, result)
		if err != nil {
			return err
		}
		id, resource := device.text(attributeDevice), cmp.Or(device.text(attributeResource), u.extended)
		if id == "" || resource == "" {
			f.remark("device %s of driver %s has no attributes %s and %s", result.Device, result.Driver, attributeDevice, attributeResource)
			continue
		}
		f.devices[id] = plan.Claimed{Claim: u.claim, Driver: result.Driver, Pool: result.Pool, Device: result.Device}
		f.allocations = append(f.allocations, gather.Allocation{Container: u.container, Resource: resource, IDs: []string{id}})
	}
	return nil
}

// remark is said once.
func (f *finding) remark(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.remarks, text) {
		f.remarks = append(f.remarks, text)
	}
}

// device finds what the driver published of an allocated device; nothing where it
// did not: it may have withdrawn the device meanwhile.
func (f *finding) device(ctx context.Context, of allocated) (sliceDevice, error) {
	if _, read := f.slices[of.Driver]; !read {
		// Those of this node, and those of several nodes.
		for _, node := range []string{f.node, ""} {
			var list struct {
				Items []resourceSlice `json:"items"`
			}
			selector := fmt.Sprintf("spec.driver=%s,spec.nodeName=%s", of.Driver, node)
			if err := f.api.read(ctx, "resourceslices", &list, selector, resourceAPI, "resourceslices"); err != nil {
				return sliceDevice{}, err
			}
			f.slices[of.Driver] = append(f.slices[of.Driver], list.Items...)
		}
	}
	var found sliceDevice
	newest := int64(-1) // a pool may have slices of an older generation for a while
	for _, slice := range f.slices[of.Driver] {
		i := slices.IndexFunc(slice.Spec.Devices, func(d sliceDevice) bool { return d.Name == of.Device })
		if i >= 0 && slice.Spec.Pool.Name == of.Pool && slice.Spec.Pool.Generation > newest {
			found, newest = slice.Spec.Devices[i], slice.Spec.Pool.Generation
		}
	}
	return found, nil
}

// read decodes the answer to a GET; selector is that of a list's fields. Errors wrap
// gather.ErrNotYet: what a pod that starts refers to exists, if not in the answer of an
// API server that lags behind.
func (c Claims) read(ctx context.Context, resource string, into any, selector string, path ...string) error {
	request, verb := c.nads.Get().AbsPath(path...), "get"
	if selector != "" {
		request, verb = request.Param("fieldSelector", selector), "list"
	}
	answer := request.Do(ctx)
	if err := answer.Error(); err != nil { // that of Raw does not tell what the API server says
		return fmt.Errorf("%w: %w", gather.ErrNotYet, explain(verb, resource, err))
	}
	raw, _ := answer.Raw()
	return json.Unmarshal(raw, into)
}

// Publish tells of a pod's devices in the status of their claim (KEP-4817), and changes
// nothing that others wrote there: where they own a field, as the device's driver may,
// the error is a conflict. A pod's entries are its own, for pods may share a claim. The
// error wraps gather.ErrNotYet where a repetition may mend it.
func (c Claims) Publish(ctx context.Context, pod plan.Pod, claim string, devices []plan.ClaimStatus) error {
	type network struct {
		Interface string   `json:"interfaceName,omitempty"`
		IPs       []string `json:"ips,omitempty"`
		MAC       string   `json:"hardwareAddress,omitempty"`
	}
	type entry struct {
		Driver  string  `json:"driver"`
		Pool    string  `json:"pool"`
		Device  string  `json:"device"`
		Network network `json:"networkData"`
	}
	var entries []entry
	for _, d := range devices {
		entries = append(entries, entry{d.Driver, d.Pool, d.Device, network{d.Interface, d.IPs, d.MAC}})
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
		"metadata": map[string]string{"namespace": pod.Namespace, "name": claim},
		"status":   map[string]any{"devices": entries},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = c.nads.Patch(types.ApplyYAMLPatchType).AbsPath(resourceAPI, "namespaces", pod.Namespace, "resourceclaims", claim, "status").
		Param("fieldManager", fieldManager+"-"+pod.UID).Body(body).Do(ctx).Error()
	if err == nil {
		return nil
	}
	err = explain("patch", "resourceclaims/status and resourceclaims/driver", err)
	if !isFinal(err) && !apierrors.IsConflict(err) {
		err = fmt.Errorf("%w: %w", gather.ErrNotYet, err)
	}
	return fmt.Errorf("the status of resource claim %s/%s: %w", pod.Namespace, claim, err)
}
