package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
)

// sealKey is our own key. v4's decoder matches keys without regard to case and
// ignores those it does not know; this one resembles none of its own.
const sealKey = "io.multus.ledger"

// v4Record is what Multus v4 keeps of an attachment (contract 1.9). Conf and
// ConfList are written for people and for v4's sanity; Bytes is what counts.
type v4Record struct {
	Conf            json.RawMessage `json:"Conf"`
	ConfList        json.RawMessage `json:"ConfList"`
	Name            string          `json:"Name"`
	IfnameRequest   string          `json:"ifnameRequest,omitempty"`
	MacRequest      string          `json:"macRequest,omitempty"`
	GUIDRequest     string          `json:"infinibandGUIDRequest,omitempty"`
	IPRequest       []string        `json:"ipRequest,omitempty"`
	GatewayRequest  *[]netip.Addr   `json:"default-route,omitempty"`
	FilterV4Gateway bool            `json:"IsFilterV4Gateway"`
	FilterV6Gateway bool            `json:"IsFilterV6Gateway"`
	DeviceID        string          `json:"deviceID,omitempty"`
	ResourceName    string          `json:"resourceName,omitempty"`
	Bytes           []byte          `json:"Bytes"`
}

// toV4 writes a record's attachments as v4 does. Interface names are explicit:
// v4 would count them otherwise, and hot-plugged ones have gaps.
func toV4(r attach.Record) ([]cniconf.Object, error) {
	elements := make([]cniconf.Object, len(r.Plan.Attachments))
	for i, a := range r.Plan.Attachments {
		rec := v4Record{
			Conf: json.RawMessage(`{}`), ConfList: json.RawMessage(`{}`), Name: a.Network, IfnameRequest: a.Interface,
			MacRequest: a.Request.MAC, GUIDRequest: a.Request.InfinibandGUID, IPRequest: a.Request.IPs,
			FilterV4Gateway: a.Routes.DropV4, FilterV6Gateway: a.Routes.DropV6,
			DeviceID: a.DeviceID, ResourceName: a.Resource, Bytes: a.Config.Bytes(),
		}
		if a.Routes.Own || len(a.Routes.Gateways) > 0 {
			gateways := append([]netip.Addr{}, a.Routes.Gateways...) // own routes alone are [], not null
			rec.GatewayRequest = &gateways
		}
		if a.Config.IsList() {
			rec.ConfList = outline(a.Config)
		} else {
			rec.Conf = outline(a.Config)
		}
		obj, err := cniconf.ParseObject(cniconf.Quote(rec))
		if err != nil {
			return nil, err
		}
		elements[i] = obj
	}
	return elements, nil
}

// outline is what v4 decodes of a configuration: name, version and plugin types.
func outline(c cniconf.Config) json.RawMessage {
	type plugin struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities,omitempty"`
		IPAM         struct{}        `json:"ipam"`
	}
	var plugins []plugin
	for _, p := range c.Plugins() {
		plugins = append(plugins, plugin{Type: p.Type, Capabilities: p.Capabilities})
	}
	if c.IsList() {
		return cniconf.Quote(map[string]any{"cniVersion": c.CNIVersion(), "name": c.Name(), "plugins": plugins})
	}
	return cniconf.Quote(map[string]any{"cniVersion": c.CNIVersion(), "name": c.Name(), "type": plugins[0].Type, "ipam": struct{}{}})
}

// loadV4 reads what Multus v4 left: of each attachment libcni's cached result and
// configuration, which are what ADD had, or else the scratch record, whose
// configuration may have lost digits of large numbers. Where neither names the
// interface, it is left empty for the first attachment, whose name the runtime
// tells, and is net<index> for the others (contract 1.6). What v4 attached later, on
// demand, is in the cache alone and comes last (contract 1.18).
func (l *Ledger) loadV4(id string, elements []cniconf.Object, results results) (attach.Record, error) {
	cached, err := l.cached(id, results)
	if err != nil {
		return attach.Record{}, err
	}
	planned := make([]plan.Attachment, len(elements))
	unread := make([]error, len(elements))
	for i, obj := range elements {
		planned[i], unread[i] = fromV4(i, obj)
	}
	r := foreign(id, attach.FromV4)
	for n, a := range planned {
		if i := match(cached, a, planned); i >= 0 {
			cached[i].addTo(&r, a)
			cached = slices.Delete(cached, i, i+1)
			continue
		}
		if unread[n] != nil {
			return attach.Record{}, fmt.Errorf("%w: %s: element %d %w", attach.ErrDamaged, filepath.Join(l.dir, id), n+1, unread[n])
		}
		fromScratch(&a, id)
		r.Plan.Attachments, r.Outcomes = append(r.Plan.Attachments, a), append(r.Outcomes, attach.Outcome{})
	}
	for _, c := range cached {
		c.addTo(&r, plan.Attachment{Role: plan.Secondary, Network: c.NetworkName})
	}
	return r, nil
}

// foreign begins a record of what another program left.
func foreign(id string, origin attach.Origin) attach.Record {
	return attach.Record{State: attach.Attached, Sandbox: attach.Sandbox{ContainerID: id}, Plan: plan.Plan{Version: plan.Version}, Origin: origin}
}

// fromV4 reads one element of v4's file. Errors read as a predicate of the element;
// with an unreadable configuration the rest is there, for the cache may have that.
func fromV4(i int, obj cniconf.Object) (plan.Attachment, error) {
	var rec v4Record
	if err := json.Unmarshal(obj.Bytes(), &rec); err != nil {
		return plan.Attachment{}, fmt.Errorf("is no record of Multus v4: %w", err)
	}
	a := plan.Attachment{
		Role: role(i), Network: rec.Name, Interface: rec.IfnameRequest, DeviceID: rec.DeviceID, Resource: rec.ResourceName,
		Request: plan.Request{MAC: rec.MacRequest, InfinibandGUID: rec.GUIDRequest, IPs: rec.IPRequest},
		Routes:  plan.RouteWish{DropV4: rec.FilterV4Gateway, DropV6: rec.FilterV6Gateway},
	}
	if a.Interface == "" && i > 0 {
		a.Interface = fmt.Sprintf("net%d", i)
	}
	if g := rec.GatewayRequest; g != nil {
		a.Routes.Gateways, a.Routes.Own = *g, len(*g) == 0
	}
	var err error
	if a.Config, err = cniconf.Parse(rec.Bytes); err != nil {
		return a, fmt.Errorf("has a configuration that %w", err)
	}
	return a, nil
}

func role(i int) plan.Role {
	if i == 0 {
		return plan.Primary
	}
	return plan.Secondary
}

// fromScratch rebuilds what v4 hands to a delegate at DEL when the cache is gone.
func fromScratch(a *plan.Attachment, id string) {
	a.Args = []plan.Arg{{"IgnoreUnknown", "true"}, {"K8S_POD_INFRA_CONTAINER_ID", id}}
	a.CapabilityArgs = map[string]json.RawMessage{}
	set := func(capability string, given bool, value any) {
		if given && a.Config.Declares(capability) {
			a.CapabilityArgs[capability] = cniconf.Quote(value)
		}
	}
	set("mac", a.Request.MAC != "", a.Request.MAC)
	set("ips", len(a.Request.IPs) > 0, a.Request.IPs)
	set("infinibandGUID", a.Request.InfinibandGUID != "", a.Request.InfinibandGUID)
	set("deviceID", a.DeviceID != "", a.DeviceID)
	if a.Request.MAC != "" {
		a.Args = append(a.Args, plan.Arg{"MAC", a.Request.MAC})
	}
	if len(a.Request.IPs) > 0 {
		a.Args = append(a.Args, plan.Arg{"IP", strings.Join(a.Request.IPs, ",")})
	}
}

// cacheEntry is a file of libcni's result cache (kind cniCacheV1).
type cacheEntry struct {
	Kind           string                     `json:"kind"`
	ContainerID    string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	NetworkName    string                     `json:"networkName"`
	NetNS          string                     `json:"netns"`
	CNIArgs        []plan.Arg                 `json:"cniArgs"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs"`
	Result         json.RawMessage            `json:"result"`

	config cniconf.Config
	path   string
}

// addTo adds a cached attachment to a record: what libcni cached goes over what is
// known of it otherwise.
func (c cacheEntry) addTo(r *attach.Record, a plan.Attachment) {
	a.Interface, a.Config, a.Args, a.CapabilityArgs = c.IfName, c.config, c.CNIArgs, c.CapabilityArgs
	r.Plan.Attachments, r.Outcomes = append(r.Plan.Attachments, a), append(r.Outcomes, attach.Outcome{Result: c.Result})
	r.Sandbox.NetNS = c.NetNS
	if pod := plan.PodOf(c.CNIArgs); pod != (plan.Pod{}) {
		r.Plan.Pod = pod
	}
}

// match finds the cached entry of an attachment, -1 for none. One without an
// interface is the primary network, which has any that is no other attachment's.
func match(cached []cacheEntry, a plan.Attachment, all []plan.Attachment) int {
	return slices.IndexFunc(cached, func(c cacheEntry) bool {
		named := slices.ContainsFunc(all, func(other plan.Attachment) bool { return other.Interface == c.IfName })
		return c.NetworkName == cmp.Or(a.Config.Name(), path.Base(a.Network)) && (c.IfName == a.Interface || a.Interface == "" && !named)
	})
}

// cached reads libcni's results of a sandbox, the usual primary interface first, then
// by name.
func (l *Ledger) cached(id string, results results) ([]cacheEntry, error) {
	names, err := results(id)
	if err != nil {
		return nil, fmt.Errorf("libcni's result cache: %w", err)
	}
	var found []cacheEntry
	for _, name := range names {
		c, err := readCached(filepath.Join(l.dir, resultsDir, name))
		if passing(err) {
			return nil, fmt.Errorf("libcni's result cache: %w", err)
		}
		if err == nil && c.ContainerID == id && !c.runtimes() {
			found = append(found, c)
		}
	}
	rank := func(c cacheEntry) string { return strings.TrimPrefix(c.IfName, "eth0") }
	slices.SortFunc(found, func(a, b cacheEntry) int { return strings.Compare(rank(a), rank(b)) })
	return found, nil
}

// results finds the files of libcni's cache that may be a sandbox's. Their names hold
// the id somewhere, between network and interface, which may hold dashes too: the file
// itself tells whose it is.
type results func(id string) (names []string, err error)

// resultsOf is results for one sandbox.
func (l *Ledger) resultsOf(id string) ([]string, error) {
	var found []string
	for name, err := range inBatches(filepath.Join(l.dir, resultsDir)) {
		if err != nil {
			return nil, err
		}
		if strings.Contains(name, "-"+id+"-") {
			found = append(found, name)
		}
	}
	return found, nil
}

// resultsOfAll is results for many sandboxes: the folder, which may be crowded, is
// listed when the first of them needs it, and not again.
func (l *Ledger) resultsOfAll(ids []string) results {
	index := sync.OnceValues(func() (map[string][]string, error) {
		found := make(map[string][]string, len(ids))
		for _, id := range ids {
			found[id] = nil
		}
		for name, err := range inBatches(filepath.Join(l.dir, resultsDir)) {
			if err != nil {
				return nil, err
			}
			for _, id := range betweenDashes(name) {
				if known, wanted := found[id]; wanted && !slices.Contains(known, name) {
					found[id] = append(known, name)
				}
			}
		}
		return found, nil
	})
	return func(id string) ([]string, error) {
		found, err := index()
		return found[id], err
	}
}

// betweenDashes are the parts of a name with a dash on either side.
func betweenDashes(name string) (parts []string) {
	for i := range name {
		for j := i + 1; name[i] == '-' && j < len(name); j++ {
			if name[j] == '-' {
				parts = append(parts, name[i+1:j])
			}
		}
	}
	return parts
}

// readCached reads one file of the cache. A damaged one is as good as none.
func readCached(path string) (cacheEntry, error) {
	c := cacheEntry{path: path}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	if c.Kind != "cniCacheV1" || c.IfName == "" || c.NetworkName == "" {
		return c, errors.New("is no result of libcni")
	}
	if string(c.Result) == "null" {
		c.Result = nil
	}
	if c.config, err = cniconf.Parse(c.Config); err == nil && c.config.Name() == "" {
		c.config = c.config.WithName(c.NetworkName)
	}
	return c, err
}

// loadCached makes a record of libcni's cache alone.
func (l *Ledger) loadCached(id string, results results) (attach.Record, error) {
	cached, err := l.cached(id, results)
	if err != nil {
		return attach.Record{}, err
	}
	if len(cached) == 0 {
		return attach.Record{}, attach.ErrNoRecord
	}
	r := foreign(id, attach.Cache)
	for i, c := range cached {
		c.addTo(&r, plan.Attachment{Role: role(i), Network: c.NetworkName})
	}
	return r, nil
}

// removeCached removes what libcni's cache still holds of a sandbox.
func (l *Ledger) removeCached(id string) error {
	cached, err := l.cached(id, l.resultsOf)
	for _, c := range cached {
		if gone := os.Remove(c.path); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// removeResults removes the cached results of a record's attachments, by name: to look
// through the folder takes long where it is full. They are left where a plugin's DEL
// failed because what it should delete was gone.
func (l *Ledger) removeResults(r attach.Record) error {
	var failed []error
	for _, a := range r.Plan.Attachments {
		name := cacheName(r, a)
		if name != filepath.Base(name) {
			continue // what another program recorded; no file of libcni's is called so
		}
		if err := os.Remove(filepath.Join(l.dir, resultsDir, name)); !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
