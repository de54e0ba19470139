package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/multus-thick/multus/internal/plan"
)

// Node is what a node daemon needs of Kubernetes in one piece: the watch, the
// status and the events.
type Node struct {
	*Watch
	name   string
	events *Events
}

// Node makes the piece for the node of that name.
func (c *Client) Node(name string, log *slog.Logger) *Node {
	return &Node{Watch: c.Watch(name, log), name: name, events: c.Events(log)}
}

// Run watches and sends events until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { n.Watch.Run(ctx) })
	both.Go(func() { n.events.Run(ctx) })
	both.Wait()
	n.Close()
	return nil
}

// Added records that an interface was attached.
func (n *Node) Added(pod plan.Pod, ifName string, ips []string, network string) {
	n.events.Added(pod, ifName, ips, network)
}

// Note records what went well.
func (n *Node) Note(pod plan.Pod, reason, message string) { n.events.Note(pod, reason, message) }

// Warn records a failure.
func (n *Node) Warn(pod plan.Pod, reason, message string) { n.events.Warn(pod, reason, message) }

// Refused records that a pod's request for networks is wrong.
func (n *Node) Refused(pod plan.Pod, message string) {
	n.events.Refused(pod, message)
}

// Disturbed records on the node, where its name is known, that something works against
// the configuration that Multus made.
func (n *Node) Disturbed(message string) {
	if n.name != "" {
		n.events.Disturbed(n.name, message)
	}
}
