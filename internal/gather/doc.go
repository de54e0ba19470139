// Package gather fetches what the plan needs — the pod, the networks, files,
// devices — through ports, and builds the plan. The daemon, the thin plugin and
// `multusctl try` differ only in the adapters they put behind the ports; the shim
// uses it with files alone for plain pods.
//
// It knows neither sockets nor network namespaces.
package gather
