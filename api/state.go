package api

// PathState is the path at which the daemon tells how it sees its node, for multusctl.
const PathState = "/v1/state"

// State is the daemon's view of its node.
type State struct {
	Version string `json:"version"`
	// NotReady says why the daemon is not ready; empty when it is.
	NotReady string       `json:"notReady,omitempty"`
	Primary  StatePrimary `json:"primary,omitzero"`
	InFlight int64        `json:"inFlight"` // admitted ADDs that have not reported
	Waiting  int64        `json:"waiting"`  // ADDs in the queue
	// Ledger is the folder in which the daemon looks for the plugin's records.
	Ledger Place `json:"ledger"`
}

// StatePrimary is the primary network. File and Network are empty where none is chosen; Why
// then says what is waited for.
type StatePrimary struct {
	File    string `json:"file,omitempty"` // as the daemon sees it
	Network string `json:"network,omitempty"`
	Why     string `json:"why,omitempty"`
}
