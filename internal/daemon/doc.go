// Package daemon is the node daemon's composition root: the unix socket with its
// HTTP API, admission of ADDs, the publisher of network-status, metrics and the
// life cycle. It thinks; the plugin acts.
//
// It runs delegates only for callers that cannot do it themselves (contract 1.8:
// /cni and /delegate of older clients) and where nobody calls: for running pods (package
// hotplug), for orphans, and for strays that are attached late. That is through the same
// engine as the plugin, and only where it has the host's root.
package daemon
