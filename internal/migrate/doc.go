// Package migrate reads an existing installation of Multus from its objects (a DaemonSet
// of v3 or v4, thin or thick, with its ConfigMaps; the values of the RKE2 and K3s chart)
// and tells what it is, what it becomes here, and what does not come along.
//
// It is pure: text goes in, a Report comes out. It opens no file, asks no cluster and
// changes nothing; what a node is like is nodestate.Preflight's to tell. The flags' keys
// are package entrypoint's, the keys package config's. multusctl calls it and prints the
// report.
package migrate
