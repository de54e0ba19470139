package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/cniconf"
)

// apiCalls counts what one ADD of an annotated pod asks of the API.
func apiCalls(ctx context.Context, t *table, n *node) error {
	if _, err := n.running(ctx); err != nil {
		return err
	}
	r, err := n.plugin(thick)
	if err != nil {
		return err
	}
	n.api.ResetRequests()
	if err := r.add(ctx, n, threePod, "calls"); err != nil {
		return err
	}
	for range 100 { // events come after the ADD
		if len(n.api.Events()) == 3 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	count := map[string]int{}
	for _, req := range n.api.Requests() {
		count[req.Method]++
	}
	var all []string
	for _, method := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprintf("%d %s", count[method], method))
	}
	t.compare("API calls of an annotated ADD, events excepted", float64(count["PATCH"]+count["GET"]), 1, "%.0f", strings.Join(all, ", "))
	return r.del(ctx, n, threePod, "calls")
}

// processorTime is what the plugins use: until the first delegate runs, and to the
// end. The delegate does nothing but to read the former from the kernel.
func processorTime(ctx context.Context, t *table, n *node) error {
	const rounds = 50
	if _, err := n.running(ctx); err != nil {
		return err
	}
	conf, err := n.generated(thick)
	if err != nil {
		return err
	}
	alone, err := cniconf.ParseObject([]byte(noopText))
	if err != nil {
		return err
	}
	programs := []*program{
		{path: n.path("bin/noop"), conf: alone},
		{path: filepath.Join(n.bin, "multus-shim"), conf: conf, first: 5},
		{path: filepath.Join(n.bin, "multus"), conf: n.thin(conf), first: 15},
	}
	var yardstick []time.Duration
	for i := range warmUp + rounds {
		least, err := n.exec(ctx, filepath.Join(n.bin, "cni", "passthru"), "ADD", noopPod, "least", n.stdin(alone, noopPod))
		if err != nil {
			return err
		}
		yardstick = append(yardstick, least)
		for _, p := range programs {
			if err := p.measure(ctx, n, fmt.Sprintf("cpu%d", i), i >= warmUp); err != nil {
				return err
			}
		}
	}
	noop := median(programs[0].whole)
	t.tell("processor time of passthru, for the speed of this machine", fmt.Sprintf("%.1f ms", millis(median(yardstick))))
	for _, p := range programs[1:] {
		name := filepath.Base(p.path)
		t.compare("processor time to the first delegate: "+name, millis(median(p.toFirst)), p.first, "%.1f ms", "")
		t.tell("processor time of the whole ADD: "+name, fmt.Sprintf("%.1f ms  (%.1f ms of a noop delegate taken off)", millis(median(p.whole)-noop), millis(noop)))
	}
	return nil
}

// program is a plugin whose processor time is measured.
type program struct {
	path           string
	conf           cniconf.Object
	first          float64 // limit of toFirst, in ms
	toFirst, whole []time.Duration
}

func (p *program) measure(ctx context.Context, n *node, containerID string, counts bool) error {
	stdin := n.stdin(p.conf, noopPod)
	whole, err := n.exec(ctx, p.path, "ADD", noopPod, containerID, stdin)
	if err != nil {
		return err
	}
	toFirst, err := n.clocked(containerID)
	if err != nil {
		return err
	}
	if counts {
		p.toFirst, p.whole = append(p.toFirst, toFirst), append(p.whole, whole)
	}
	_, err = n.exec(ctx, p.path, "DEL", noopPod, containerID, stdin)
	return err
}

// clocked is the processor time that the noop delegate saw its caller use.
func (n *node) clocked(containerID string) (time.Duration, error) {
	text, err := os.ReadFile(n.path("clock." + containerID))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for line := range strings.Lines(string(text)) { // one a thread
		var ran time.Duration
		if _, err := fmt.Sscan(line, &ran); err != nil {
			return 0, fmt.Errorf("the noop delegate's clock: %w", err)
		}
		sum += ran
	}
	return sum, nil
}

// exec runs a plugin and returns the processor time of it and its children.
func (n *node) exec(ctx context.Context, path, verb, pod, containerID string, stdin []byte) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin = n.environ(verb, pod, containerID), bytes.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stdout = &said
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s %s: %w: %s", path, verb, err, &said)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

const warmUp = 3

// way is one way to attach a pod.
type way struct {
	name string
	*runtime
	add, del []time.Duration
}

// ratios compares Multus with its delegates run directly, in turns.
func ratios(pairs int) func(context.Context, *table, *node) error {
	return func(ctx context.Context, t *table, n *node) error {
		if _, err := n.running(ctx); err != nil {
			return err
		}
		for _, pod := range []struct {
			name, what string
			networks   []string
			limit      float64
		}{
			{plainPod, "plain pod", []string{primaryText}, 1.05},
			{threePod, "primary + 2", []string{primaryText, bridgeText, macvlanText}, 1.10},
		} {
			ways, err := n.ways(pod.networks)
			if err != nil {
				return err
			}
			if err := n.inTurns(ctx, ways, pod.name, "ratio", pairs); err != nil {
				return err
			}
			for _, w := range ways[1:] {
				compareWith(t, "ADD, "+pod.what+": "+w.name+" / direct", w.add, ways[0].add, pod.limit)
				compareWith(t, "DEL, "+pod.what+": "+w.name+" / direct", w.del, ways[0].del, pod.limit)
			}
		}
		return nil
	}
}

// inTurns measures each way so many times, after a warm-up; nobody is always the first.
func (n *node) inTurns(ctx context.Context, ways []*way, pod, part string, times int) error {
	for i := range warmUp + times {
		for at := range ways {
			w := ways[(at+i)%len(ways)]
			if err := w.measure(ctx, n, pod, fmt.Sprintf("%s-%s-%s-%d", part, pod, w.name, i), i >= warmUp); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

func (n *node) ways(networks []string) ([]*way, error) {
	direct, err := n.direct(networks...)
	if err != nil {
		return nil, err
	}
	shim, err := n.plugin(thick)
	if err != nil {
		return nil, err
	}
	thin, err := n.plugin(n.thin)
	if err != nil {
		return nil, err
	}
	return []*way{{name: "direct", runtime: direct}, {name: "thick", runtime: shim}, {name: "thin", runtime: thin}}, nil
}

func (w *way) measure(ctx context.Context, n *node, pod, containerID string, counts bool) error {
	begin := time.Now()
	if err := w.runtime.add(ctx, n, pod, containerID); err != nil {
		return err
	}
	added := time.Now()
	if err := w.runtime.del(ctx, n, pod, containerID); err != nil {
		return err
	}
	if counts {
		w.add, w.del = append(w.add, added.Sub(begin)), append(w.del, time.Since(added))
	}
	return nil
}

func compareWith(t *table, what string, ours, direct []time.Duration, limit float64) {
	a, b := millis(median(ours)), millis(median(direct))
	t.compare(what, a/b, limit, "%.2f ×", fmt.Sprintf("%.1f / %.1f ms, %+.1f", a, b, a-b))
}

// parallel attaches eight networks whose IPAM is slow.
func parallel(ctx context.Context, t *table, n *node) error {
	const rounds = 3
	if _, err := n.running(ctx); err != nil {
		return err
	}
	one, err := n.direct(slowText)
	if err != nil {
		return err
	}
	together, err := n.plugin(parallelism(8))
	if err != nil {
		return err
	}
	oneByOne, err := n.plugin(parallelism(1))
	if err != nil {
		return err
	}
	ways := []*way{{name: "one", runtime: one}, {name: "8", runtime: together}, {name: "1", runtime: oneByOne}}
	if err := n.inTurns(ctx, ways, manyPod, "parallel", rounds); err != nil {
		return err
	}
	compareWith(t, "ADD, 8 slow secondaries, attachParallelism 8 / one of them", ways[1].add, ways[0].add, 2.5)
	a, b := median(ways[2].add), median(ways[0].add)
	t.tell("ADD, 8 slow secondaries, attachParallelism 1 / one of them", fmt.Sprintf("%.2f ×  (%.1f / %.1f ms)", float64(a)/float64(b), millis(a), millis(b)))
	return nil
}
