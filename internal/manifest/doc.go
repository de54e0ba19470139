// Package manifest puts a folder of YAML files in the place of a cluster: the pods and
// NetworkAttachmentDefinitions in it are found as kube finds those of the API. `multusctl
// try` and tests of plans use it.
//
// It reads what kubectl apply would take, lists of kubectl get included, but no
// templates: a Deployment's pods exist only where its controller runs. It neither
// watches the folder nor validates what plan checks anyway.
package manifest
