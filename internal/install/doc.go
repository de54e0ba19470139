// Package install puts Multus's CNI plugins into the node's plugin folder while
// older copies of them are running (contract 1.1, report T3): no shell, no cp. And it
// takes Multus off a node again, in an order in which the node makes and deletes pods
// all the time.
//
// It writes no configuration: that is confgen's. The commands install_multus and multusctl
// call it.
package install
