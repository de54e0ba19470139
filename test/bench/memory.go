package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// memory measures the running daemon: at rest, in a burst, in the long run.
func memory(ctx context.Context, t *table, n *node) error {
	d, err := n.restarted(ctx)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // what was needed to read the lists goes back to the system
	idle, err := d.memory()
	if err != nil {
		return err
	}
	t.compare(fmt.Sprintf("daemon at rest, %d pods, %d networks", localPods, manyNADs), idle.mib(), 30, "%.1f MiB", idle.detail)
	peak, err := d.peakWhile(func() error { return n.burst(ctx) })
	if err != nil {
		return err
	}
	t.compare(fmt.Sprintf("daemon in a burst of %d ADDs, at most, above rest", localPods), peak.mib()-idle.mib(), 10, "%+.1f MiB", peak.detail)
	return n.longRun(ctx, t)
}

// used is the memory of the daemon.
type used struct {
	bytes  int64
	detail string
}

func (u used) mib() float64 { return float64(u.bytes) / mib }

// memory is the working set where the daemon has a cgroup, else its memory that
// nothing but it can hold.
func (d *daemon) memory() (used, error) {
	status := fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid)
	anon, err := field(status, "RssAnon")
	shmem, err2 := field(status, "RssShmem")
	all, err3 := field(status, "VmRSS")
	if err := errors.Join(err, err2, err3); err != nil {
		return used{}, err
	}
	own := used{(anon + shmem) << 10, fmt.Sprintf("RssAnon+RssShmem; VmRSS %.1f", float64(all)/1024)}
	if d.group == nil {
		return own, nil
	}
	set, err := d.group.workingSet()
	return used{set, fmt.Sprintf("working set of its cgroup; RssAnon+RssShmem %.1f, VmRSS %.1f", own.mib(), float64(all)/1024)}, err
}

// peakWhile looks at the memory all the time while f runs.
func (d *daemon) peakWhile(f func() error) (used, error) {
	var most used
	var failed error
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for failed == nil {
			select {
			case <-look.C:
				var now used
				if now, failed = d.memory(); now.bytes > most.bytes {
					most = now
				}
			case <-done:
				return
			}
		}
	})
	err := f()
	close(done)
	watcher.Wait()
	return most, errors.Join(err, failed)
}

// burst adds all local pods at once, each with three networks that do nothing, and
// deletes them.
func (n *node) burst(ctx context.Context) error {
	conf, err := n.generated(thick)
	if err != nil {
		return err
	}
	for _, verb := range []string{"ADD", "DEL"} {
		group, ctx := errgroup.WithContext(ctx)
		for i := range localPods {
			pod := fmt.Sprint(burstPods, i)
			group.Go(func() error {
				_, err := n.exec(ctx, filepath.Join(n.bin, "multus-shim"), verb, pod, pod, n.stdin(conf, pod))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// longRun plans and reports ten thousand times, as plugins do.
func (n *node) longRun(ctx context.Context, t *table) error {
	const early, all, callers = 2000, 10000, 4
	if err := n.cycles(ctx, early, callers); err != nil {
		return err
	}
	before, err := n.daemon.settled()
	if err != nil {
		return err
	}
	if err := n.cycles(ctx, all-early, callers); err != nil {
		return err
	}
	after, err := n.daemon.settled()
	if err != nil {
		return err
	}
	t.compare(fmt.Sprintf("daemon after %d ADDs, above after %d", all, early), after.mib()-before.mib(), 1, "%+.1f MiB", after.detail)
	return nil
}

// settled is the least memory within a second.
func (d *daemon) settled() (used, error) {
	var least used
	for i := range 10 {
		time.Sleep(100 * time.Millisecond)
		now, err := d.memory()
		if err != nil {
			return used{}, err
		}
		if i == 0 || now.bytes < least.bytes {
			least = now
		}
	}
	return least, nil
}

func (n *node) cycles(ctx context.Context, count, callers int) error {
	conf, err := n.generated(thick)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range count {
		group.Go(func() error {
			return n.cycle(ctx, conf.Bytes(), fmt.Sprint(burstPods, i%localPods), fmt.Sprintf("cycle%d", i))
		})
	}
	return group.Wait()
}

func (n *node) cycle(ctx context.Context, conf []byte, pod, containerID string) error {
	client := api.NewClient(n.path("socket"))
	defer client.Close()
	_, err := client.Plan(ctx, time.Second, api.PlanRequest{
		Protocol: api.Protocol, ContainerID: containerID, NetNS: n.netns, Interface: "eth0",
		Args:   "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod + ";K8S_POD_UID=uid-" + pod,
		Config: conf, RuntimeConfig: map[string]json.RawMessage{config.PodAnnotationsCapability: cniconf.Quote(n.annotations(pod))},
	})
	if err != nil {
		return err
	}
	entry := json.RawMessage(`{"name":"noop","interface":"eth0","ips":["10.244.0.9"],"mac":"02:00:00:00:00:01","default":true,"dns":{}}`)
	// Without events, which the API client would send at 50 a second.
	_, err = client.Report(ctx, api.Report{
		Protocol: api.Protocol, Verb: "ADD", ContainerID: containerID, Pod: api.Pod{Namespace: "default", Name: pod, UID: "uid-" + pod},
		Plain: true, NoWait: true, Attachments: []api.Attachment{{Network: "noop", Interface: "eth0", Plugins: []string{"passthru"}, Status: []json.RawMessage{entry}}},
	})
	return err
}

// staleFiles starts the daemon over a cache that nobody has cleaned for years, and
// attaches a pod there.
func staleFiles(ctx context.Context, t *table, n *node) error {
	n.stop()
	if err := n.fillCache(staleResults); err != nil {
		return err
	}
	d, err := n.running(ctx)
	if err != nil {
		return err
	}
	t.compare(fmt.Sprintf("daemon: start to ready, %d stale files", staleResults), d.ready.Seconds(), 5, "%.2f s", "")
	ways, err := n.ways([]string{primaryText})
	if err != nil {
		return err
	}
	if err := n.inTurns(ctx, ways[:2], plainPod, "stale", 10); err != nil {
		return err
	}
	compareWith(t, fmt.Sprintf("ADD, plain pod: thick / direct, %d stale files", staleResults), ways[1].add, ways[0].add, 1.05)
	return nil
}

const staleResults = 300000

// fillCache mounts a cache of stale results, in memory: on a disk it would take
// minutes to make.
func (n *node) fillCache(files int) error {
	records := n.path("cni")
	if err := os.MkdirAll(records, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("stale", records, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("a file system in memory: %w", err)
	}
	n.mounts = append(n.mounts, records)
	dir := filepath.Join(records, "results")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("cluster-%064x-eth0", i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}
