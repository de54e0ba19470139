package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/multus-thick/multus/internal/plan"
)

// Check compares every recorded attachment with what is in the namespace — link,
// MAC, addresses, default routes — and asks the primary network's plugins (all
// networks' with CheckDelegates). Without a record the error wraps ErrNoRecord.
func (e *Engine) Check(ctx context.Context, sb Sandbox, ifName string) error {
	lock, err := e.Ledger.Lock(ctx, sb.ContainerID)
	if err != nil {
		return err
	}
	defer lock.Release()
	rec, err := e.Ledger.Load(sb.ContainerID)
	if err != nil {
		return err
	}
	rec.calledBy(sb, ifName)
	var failed []error
	for i := range rec.Plan.Attachments {
		if err := e.checkOne(ctx, rec, i, lock); err != nil {
			failed = append(failed, rec.failure(i, "CHECK", err))
		}
	}
	return errors.Join(failed...)
}

func (e *Engine) checkOne(ctx context.Context, rec Record, i int, lock Lock) error {
	result := rec.result(i)
	switch {
	case result == nil && rec.Origin != Ours:
		return nil // v4 kept no result: nothing to compare with
	case result == nil && rec.Plan.Attachments[i].Optional:
		return nil // it is owed a DEL, and the pod runs without it
	case result == nil:
		return types.NewError(types.ErrUnknownContainer, "its ADD did not finish", "")
	case !rec.Outcomes[i].Unseen:
		if err := e.compare(ctx, rec.Sandbox.NetNS, rec.Plan.Attachments[i].Interface, result); err != nil {
			return err
		}
	}
	if rec.Plan.Attachments[i].Role != plan.Primary && !e.CheckDelegates {
		return nil
	}
	return e.Runner.Check(ctx, rec.attachment(i, lock), result)
}

// unseen tells that the namespace does not show what the result of an ADD just now
// says. CHECK must not fail for ever for that.
func (e *Engine) unseen(ctx context.Context, rec Record, i int) bool {
	err := e.compare(ctx, rec.Sandbox.NetNS, rec.Plan.Attachments[i].Interface, rec.result(i))
	if err != nil {
		e.Log.Info("CHECK will not compare this network: its result is not what its plugins made", "pod", rec.Plan.Pod.String(), "network", rec.Plan.Attachments[i].Network, "error", err)
	}
	return err != nil
}

// compare finds differences between a result and the namespace. Only what the
// result names counts: addresses and routes that came later are nobody's mistake.
func (e *Engine) compare(ctx context.Context, netns, ifName string, raw json.RawMessage) error {
	result, err := current(raw)
	if err != nil {
		return err
	}
	for i, link := range sandboxLinks(result, ifName) {
		facts, err := e.Links.Facts(ctx, netns, link.Name)
		if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrNoNetNS) {
			return fmt.Errorf("the interface %s is gone", link.Name)
		}
		if err != nil {
			return err
		}
		if link.Mac != "" && !strings.EqualFold(link.Mac, facts.MAC) {
			return fmt.Errorf("the interface %s has the MAC %s, it was given %s", link.Name, facts.MAC, link.Mac)
		}
		for _, want := range addressesOf(result, link.index, i == 0) {
			if !slices.Contains(facts.Addresses, want) {
				return fmt.Errorf("the interface %s has lost the address %s", link.Name, want)
			}
		}
		if link.Name != ifName {
			continue
		}
		if lost, ok := lostDefaultRoute(result, facts.Routes); ok {
			return fmt.Errorf("the interface %s has lost its default route %s", link.Name, lost)
		}
	}
	return nil
}

// lostDefaultRoute finds a default route of the result, any of its family will do.
func lostDefaultRoute(result *types100.Result, have []Route) (netip.Prefix, bool) {
	for _, r := range result.Routes {
		want, err := netip.ParsePrefix(r.Dst.String())
		if err != nil || want.Bits() != 0 || r.Table != nil && *r.Table != mainTable {
			continue
		}
		same := func(have Route) bool { return have.Dst.Bits() == 0 && have.Dst.Addr().Is4() == want.Addr().Is4() }
		if !slices.ContainsFunc(have, same) {
			return want, true
		}
	}
	return netip.Prefix{}, false
}

type sandboxLink struct {
	*types100.Interface
	index int
}

// sandboxLinks are the result's interfaces inside the pod.
func sandboxLinks(result *types100.Result, ifName string) []sandboxLink {
	var links []sandboxLink
	for i, l := range result.Interfaces {
		if l.Sandbox != "" {
			links = append(links, sandboxLink{l, i})
		}
	}
	if len(result.Interfaces) == 0 && len(result.IPs) > 0 { // versions before 0.3.0 name none
		links = append(links, sandboxLink{&types100.Interface{Name: ifName}, -1})
	}
	return links
}

// addressesOf are the result's addresses on an interface; those without an index
// are the first one's.
func addressesOf(result *types100.Result, index int, first bool) []netip.Prefix {
	var all []netip.Prefix
	for _, ip := range result.IPs {
		if ip.Interface != nil && *ip.Interface != index || ip.Interface == nil && !first {
			continue
		}
		if prefix, err := netip.ParsePrefix(ip.Address.String()); err == nil {
			all = append(all, prefix)
		}
	}
	return all
}

// current reads a result of any CNI version.
func current(raw json.RawMessage) (*types100.Result, error) {
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("the recorded result cannot be read: %w", err)
	}
	return types100.NewResultFromResult(result)
}
