package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Claims is the daemon's side of resource claims (DRA): package kube's.
type Claims interface {
	gather.Devices
	// Publish tells of a pod's attached devices in the status of one of its claims.
	Publish(ctx context.Context, pod plan.Pod, claim string, devices []plan.ClaimStatus) error
}

// claimTries is how often a claim's status is tried to be written: it is a courtesy to
// whoever looks there, and its failure is nobody's.
const claimTries = 5

// publishClaims tells of a pod's devices in the status of their claims (KEP-4817), where
// that is wished, without waiting. A claim without devices is told that none is attached.
func (p *publisher) publishClaims(pod plan.Pod, byClaim map[string][]plan.ClaimStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims == nil || p.stopped() {
		return
	}
	for claim, devices := range byClaim {
		key := pod.String() + " " + claim
		older := p.writing[key]
		if older != nil {
			older.cancel()
		}
		ctx, cancel := context.WithCancel(p.running)
		mine := &publication{pod: pod, cancel: cancel, ended: make(chan struct{})}
		p.writing[key] = mine
		p.workers.Go(func() {
			defer cancel()
			defer close(mine.ended)
			if older != nil {
				<-older.ended // what it has sent must not come after this
			}
			if err := p.publishClaim(ctx, pod, claim, devices); err != nil && ctx.Err() == nil {
				p.log.Warn("the status of a resource claim cannot be written", "pod", pod.String(), "claim", claim, "error", err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.writing[key] == mine {
				delete(p.writing, key)
			}
		})
	}
}

func (p *publisher) publishClaim(ctx context.Context, pod plan.Pod, claim string, devices []plan.ClaimStatus) error {
	var failed error
	pause := 500 * time.Millisecond
	for range claimTries {
		if failed = p.claims.Publish(ctx, pod, claim, devices); failed == nil || !errors.Is(failed, gather.ErrNotYet) {
			return failed
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
	return failed
}

// claimStatus is what a record tells of the devices of claims, by claim.
func claimStatus(rec attach.Record) map[string][]plan.ClaimStatus {
	byClaim := map[string][]plan.ClaimStatus{}
	status := attach.StatusEntries(rec)
	for i, a := range rec.Plan.Attachments {
		if a.Claim == nil || len(status[i]) == 0 {
			continue
		}
		byClaim[a.Claim.Claim] = append(byClaim[a.Claim.Claim], plan.ClaimStatus{
			Claimed: *a.Claim, Interface: a.Interface, MAC: status[i][0].MAC, IPs: netspec.Addresses(rec.Outcomes[i].Result),
		})
	}
	return byClaim
}

// claimChange is claimStatus of a pod some of whose networks came or went.
func claimChange(before, now attach.Record) map[string][]plan.ClaimStatus {
	byClaim := claimStatus(now)
	for claim := range claimStatus(before) {
		if byClaim[claim] == nil {
			byClaim[claim] = []plan.ClaimStatus{}
		}
	}
	return byClaim
}

// publishClaims tells of the devices of a sandbox that was attached, as it is recorded.
func (d *Daemon) publishClaims(containerID string) {
	if d.publisher.claims == nil {
		return
	}
	rec, err := d.ledger.Load(containerID)
	if err != nil {
		d.Log.Warn("the status of resource claims is not written", "sandbox", containerID, "error", err)
		return
	}
	d.publisher.publishClaims(rec.Plan.Pod, claimStatus(rec))
}
