// Package attach executes plans: ADD in order with the undo of every step, DEL in
// reverse, CHECK, GC and STATUS. It holds the rules that make a node safe: intent
// is recorded before the first delegate runs, operations on one sandbox exclude
// each other across processes, and what is not known is not touched.
//
// It knows neither Kubernetes nor sockets. What it needs from the outside are the
// ports below: delegates (Runner), the pod's network namespace (Links) and the
// durable record (Ledger).
package attach
