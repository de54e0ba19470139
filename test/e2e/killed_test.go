//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// slowBridge is a plugin on a node that waits before it attaches as the bridge plugin.
const slowBridge = `#!/bin/sh
[ "$CNI_COMMAND" != ADD ] || sleep 4
exec /opt/cni/bin/bridge
`

// slow is a network whose plugin takes its time. It is put onto a node.
func (s *suite) slow(node, name, subnet string) object {
	s.Helper()
	s.copyTo(node, s.file("slow", slowBridge), "/opt/cni/bin/slow")
	conf := bridged(name, subnet)
	conf["type"] = "slow"
	return conf
}

// killAdd kills plugins whose delegate is at work; not those that delete.
const killAdd = `pgrep -f '^/bin/sh /opt/cni/bin/slow' >/dev/null || exit 1
killed=1
for p in $(pidof multus-shim); do
	grep -qz '^CNI_COMMAND=ADD$' /proc/$p/environ && kill -KILL $p && killed=0
done
exit $killed
`

// A plugin that is killed in the middle of an ADD, as a runtime does when its own time is
// up: the delegate that goes on does not race the DEL, the pod comes up, and nothing leaks.
func TestI3_PluginKilledInTheMiddle(t *testing.T) {
	s := begin(t)
	s.apply(nad("slow", s.slow(node1, "slow", "10.63.0.0/24")))
	records := len(s.records(node1))
	s.apply(pod("p", node1, "slow"))
	for range 2 {
		s.within(patience, func() error {
			if _, err := tryOn(s.Context(), node1, "sh", "-c", killAdd); err != nil {
				return fmt.Errorf("no plugin is in the middle of an ADD: %w", err)
			}
			return nil
		})
	}
	s.ready("p")
	s.complete(2, "p")
	s.remove(node1, "p")
	s.within(patience, func() error {
		if left := s.records(node1); len(left) != records {
			return fmt.Errorf("records %v, want %d", left, records)
		}
		return nil
	})
}

// The runtime is killed in the middle of a burst, which ends its plugins' callers too.
func TestI3_RuntimeKilledInABurst(t *testing.T) {
	s := begin(t)
	s.apply(nad("lan", bridged("lan", "10.64.0.0/16")), nad("slow", s.slow(node1, "slow", "10.65.0.0/16")))
	names := append(s.burst("p", 20, node1, "lan"), s.burst("slow", 4, node1, "slow,lan")...)
	s.within(patience, func() error { return atLeast(5, len(s.leases(node1))) })
	s.Must(s.machine(node1).KillProgram(t.Context(), "containerd"))
	s.allReady(10 * time.Minute)
	s.complete(2, names[:20]...)
	s.complete(3, names[20:]...)
	s.remove(node1, names...)
}

var errTooFew = errors.New("too few")

func atLeast(want, got int) error {
	if got < want {
		return fmt.Errorf("%w: %d, want %d", errTooFew, got, want)
	}
	return nil
}

// A pod that is deleted while its ADD runs.
func TestI3_PodDeletedWhileItsAddRuns(t *testing.T) {
	s := begin(t)
	s.apply(nad("slow", s.slow(node1, "slow", "10.66.0.0/24")))
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		s.apply(pod(name, node1, "slow"))
		s.within(patience, func() error {
			_, err := tryOn(s.Context(), node1, "pgrep", "-f", "^/bin/sh /opt/cni/bin/slow")
			return err
		})
		s.kubectl("-n", s.ns, "delete", "pod", name, "--timeout=120s")
	}
}
