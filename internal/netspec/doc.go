// Package netspec is the vocabulary of the Kubernetes Network Custom Resource
// Definition De-facto Standard v1.3 (the "multi-net-spec"): references to
// networks, network selection elements, network-status entries, and the
// annotations that carry them. It parses and prints them, and locates what is
// wrong in them.
//
// It resolves nothing: whether a network exists, and what a selection means for
// a pod, is the plan's business.
package netspec
