// Package plan turns a pod, the node's settings and fetched facts into a Plan:
// the complete, ordered list of attachments, each with its whole CNI
// configuration, interface name and arguments.
//
// It is pure: no clock, no file, no network, no log. Needs says what a caller has
// to fetch for a pod, Build gives the Plan or everything that is wrong with the
// request at once. The Plan is also the record: it is written to the ledger before
// anything runs, and DEL, CHECK and GC replay it.
//
// Package gather calls Needs and Build, the daemon Single, the engine of package
// attach runs the Plan. The files of testdata are the specification.
package plan
