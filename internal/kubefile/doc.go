// Package kubefile keeps the kubeconfig files that Multus writes: the thin plugin's, and
// the one beside a node's certificate. It does not know what is in them; packages entrypoint
// and nodecert say that.
package kubefile
