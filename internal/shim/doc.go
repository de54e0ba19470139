// Package shim is one CNI invocation from the runtime's call to its answer: read
// the configuration, get the plan (from the daemon, or alone for a plain pod),
// attach, report. The thick plugin, the thin plugin and the daemon (for an older
// shim's requests) run the same code with another Planner.
//
// It imports no Kubernetes client: the binary is started for every pod, and its
// size and start time are budgeted.
package shim
