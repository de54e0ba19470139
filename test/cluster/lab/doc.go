// Package lab runs a real Kubernetes on one machine, without containers around it:
// etcd and the control plane, and nodes with containerd, runc, kubelet and kube-proxy.
//
// Each of these machines is one tree of processes in namespaces and cgroups of its
// own, whose first process is the program that imports this package, run again (see
// [IsInit]). The parts:
//
//   - artifact.go, tools.go: what is built, and cached by content, from the Go module
//     proxy and Debian's packages
//   - cluster.go, up.go, machine.go, programs.go, network.go: the driver; it decides
//     everything, writes a machine's [spec], starts its first process, plugs its
//     cables, starts its programs
//   - init.go, mounts.go, supervisor.go: the first process; it makes the machine's root,
//     then runs and restarts programs as it is told through a socket
//
// Nothing of a cluster is outside its state folder, but for the cgroups that
// are listed there and the processes, which are found by the state folder in their
// command line. So two folders are two clusters, and what a killed run has left is
// cleared by the next up or down.
//
// It does not know Multus. The command line in test/cluster and the tests in test/e2e
// call it. It needs root, and the controllers of cgroup version 1.
package lab
