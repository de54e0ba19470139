// Command bench prints the budgets of the design as figures and ratios, all of
// them measured in one run on this machine: sizes, processor time of the plugins,
// ADD and DEL against the same delegates run directly, memory of the daemon, calls
// of the API, time to readiness.
//
// It is for people. It asserts nothing, since it measures with a clock: its exit
// code says only whether everything ran. It runs as root, in network and mount
// namespaces of its own; files are in a temporary folder on the disk, so that what
// the ledger syncs costs what it costs. `make bench` runs it.
package main
