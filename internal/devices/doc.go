// Package devices tells which devices the kubelet has allocated to a pod: from the
// pod-resources API on the kubelet's socket, and from the device manager's
// checkpoint file where the API does not answer (contract 1.9). It satisfies
// gather.Devices; the daemon and the thin plugin use it.
//
// It hands out the kubelet's allocations and does not choose among them: which
// attachment takes which device is the plan's.
package devices
