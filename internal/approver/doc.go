// Package approver approves the requests of nodes for client certificates of Multus, and
// denies those that ask for more than a node may have (contract 1.16): Judge holds the
// rules and does no I/O, Approver follows the API. Requests of others are not touched.
//
// Several at once do no harm, so there is no leader election. The package signs nothing:
// the cluster's signer does. cmd/cert-approver runs it.
package approver
