// Package node_test is the node suite: the real programs with the real reference
// plugins in real network namespaces, started as a container runtime starts them,
// with an API server that can be made to misbehave. Each test has a node of its own;
// nothing of it is in the machine's own network namespace, or outside a temporary
// folder. It needs root and what `make build plugins` builds.
//
// What a package can show by itself is tested there; here is what takes a node.
package node_test
