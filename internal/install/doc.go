// Package install puts Multus's CNI plugins into the node's plugin folder while
// older copies of them are running (contract 1.1, report T3): no shell, no cp.
//
// It installs files and nothing else: configuration is confgen's. The
// install_multus command calls it.
package install
