// Package fakehost is a node in memory for tests of the engine in package attach:
// network namespaces with interfaces, addresses and default routes, networks that
// lease addresses, and the ledger. It prints its whole state as text, remembers
// every call, and notes what must never happen: two delegates at the same time for
// one interface of a sandbox, or a delegate without the sandbox's lock.
//
// A Host is the machine. A Process is one run of a program on it and has the
// engine's ports; every call of a port is a step. A process can be made to die at
// any step: its goroutines end there and then, its locks become free as those of a
// killed program do, and the host keeps what was done.
//
// Delegates are whole networks here: the plugins of a list are not run one by one
// (package cnirun does that). It has no kernel, so it does not know metrics, and no
// files, so it does not know half-written ones.
package fakehost
