// Package apiserver is a small Kubernetes API server for tests and benches: pods,
// NetworkAttachmentDefinitions and events over HTTP or HTTPS on a loopback address, real
// enough for client-go's informers, and scriptable: it can be slow, fail chosen
// requests, demand a token or a certificate, refuse connections, lose its watches or its history, and
// it remembers every request.
//
// It does no admission, no validation and no garbage collection, speaks JSON only, and
// knows just the verbs that Multus uses: get, list, watch, patch and update of a
// pod's status, eviction of a pod, create and patch of events, and of certificate signing requests create and
// approval, after which they are signed. Other objects come from the test, by PutPod and PutNAD.
//
// Tests of kube, gather and daemon use it, and the benches of multusctl.
package apiserver
