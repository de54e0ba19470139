// Package entrypoint is the main container of the thin installation (contract 1.2): it
// copies the plugin to the node, writes the kubeconfig that the plugin uses from the
// pod's service account, and keeps both it and the runtime's configuration right until
// it is told to end. Its flags are a table that names the configuration key of each;
// the node daemon takes the same flags by it (Under).
//
// It does not choose the primary network and writes no configuration by itself
// (confgen does), and it does not watch pods. cmd/thin_entrypoint and cmd/multus-daemon call it.
package entrypoint
