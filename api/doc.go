// Package api is what a client of the Multus daemon needs: the types that cross
// the unix socket, the codec of errors, and a small client. docs/PROTOCOL.md
// describes the protocol in words.
//
// It imports the standard library and the CNI types only, and is the one package
// of this module that others may import.
package api
