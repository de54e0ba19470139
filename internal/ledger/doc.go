// Package ledger is the node's durable memory of what is attached where. It keeps
// one file a sandbox in cniDir, in the form that Multus v4 reads and writes, so that
// a node can be upgraded and downgraded with its pods running. It implements the
// engine's ports Ledger and Lock.
//
// It decides nothing: what to delete, and what to believe, is the engine's business.
// It links no Kubernetes code, for it is part of the plugin.
package ledger
