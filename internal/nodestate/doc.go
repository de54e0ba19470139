// Package nodestate reads how Multus stands on one node, from the node's files and the
// daemon's socket: what is attached (Read), what is wrong and what to do about it
// (Diagnose), what would be in the way of another Multus (Preflight), and all of that without secrets, for those who are asked for help (Bundle).
//
// It changes nothing, links no Kubernetes client and needs neither the daemon nor the API to
// answer. multusctl prints what it finds; package install asks it before it removes
// Multus.
package nodestate
