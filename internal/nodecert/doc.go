// Package nodecert keeps the client certificate of a node's Multus: it asks the cluster
// for one with the credentials of a bootstrap kubeconfig, keeps it in a folder, and
// renews it before it ends (contract 1.16). The file's name and its being a link are
// Multus v4's, which can take over after a downgrade.
//
// Client-go's certificate manager does the same. It would bring the typed clients of
// the whole API into the daemon (8 MiB of its 30), leaves a moment without a file at
// each renewal, never removes an old one, and refuses to start over a damaged one.
//
// The package does not approve requests (approver does) and makes no client for
// others: what it keeps is a file, and a kubeconfig that names it (WriteKubeconfig).
// cmd/multus-daemon and cmd/kubeconfig_generator run it.
package nodecert
