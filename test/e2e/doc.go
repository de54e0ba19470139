// Package e2e is the cluster suite: Multus on a real Kubernetes of two nodes (package
// lab), installed from deploy/ as users do, and looked at as users see it: through
// kubectl, inside pods, and on the nodes' disks. `make e2e` runs it.
package e2e
