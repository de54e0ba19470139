// Package kube is the side of Multus that faces the Kubernetes API: it finds pods and
// NetworkAttachmentDefinitions, writes the network-status annotation and records events.
//
// A Client reads from the API each time; the thin plugin uses it alone. A Watch keeps
// pods and NetworkAttachmentDefinitions in memory beside it, for the daemon. Both
// satisfy gather.Pods and gather.Networks. Events is a queue that never blocks.
//
// Memory is the measure of the Watch: a daemon of 30 MiB holds 250 pods and 5000
// NetworkAttachmentDefinitions. It therefore asks for the metadata of pods only,
// decodes NetworkAttachmentDefinitions into a type of their own, and feeds its tables
// from client-go's reflector directly, so that there is one copy of what is needed and
// none of what is not. There is no resync.
//
// # Credentials
//
// A token in a file, of a service account or a kubeconfig's tokenFile, is read again
// every minute and after a 401. So is a token that stands in the kubeconfig itself.
// A client certificate in files is read for each connection, may come late, and after a
// 401 all connections are made anew. Client-go reads a CA file again when it changes.
// Everything else in a kubeconfig (server, certificates written into it) is read once,
// by Connect.
//
// # RBAC
//
// get, list, watch on pods and on k8s.cni.cncf.io network-attachment-definitions; patch
// on pods/status; create, patch on events; create on pods/eviction where strays are evicted. The thin plugin needs no list and no watch.
// Under the ClusterRole of Multus v4, with update for patch on pods/status, a status
// costs three requests instead of one.
//
// The package does not decide what a pod gets (plan does), does not retry reads (gather
// does) and does not read environment variables (cmd does).
package kube
