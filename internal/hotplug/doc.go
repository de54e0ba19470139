// Package hotplug follows the networks annotation of running pods: what a pod selects
// and its sandbox does not have is attached, what it has and no longer selects is
// detached. Diff, which is pure, compares the annotation with the ledger; the Reconciler
// carries the difference out, one pod at a time, tries again what failed without
// touching what works, and says on the pod how it went.
//
// It plans nothing and runs no plugin itself: that is asked of its ports, which package
// daemon, its only caller, fills with the gatherer and the engine. It leaves alone static
// pods, pods that are being deleted, sandboxes that the ledger does not know, and what
// /delegate attached, which is its caller's.
package hotplug
