// Package cnirun runs CNI plugins. It implements attach.Runner as the CNI
// specification 1.1, section 4, wants it of a runtime: it finds the binaries,
// derives each plugin's stdin with cniconf, which loses nothing, hands results
// from plugin to plugin, and keeps the error codes that plugins return.
//
// It does not decide what to attach, roll back, take locks or record anything but
// libcni's result cache, which Multus v4 reads after a downgrade. It is not built
// on libcni: that sends configurations through floating point numbers and takes
// prevResult only from its own cache, and it brings more into the plugin's binary
// than its size budget allows.
//
// The plugin on the host, the daemon's executor and multusctl make a Runner and
// give it to attach.
package cnirun
