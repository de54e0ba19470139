// Package trial attaches the pods of a folder of YAML on a node of its own: a process
// tree with private network, mount and PID namespaces, in which the real daemon and
// plugin run, and which leaves nothing on the machine when it ends, however it ends.
//
// Read takes a folder in; Enter makes the calling process the node's first; Start
// brings the node up. Plan does none of that and runs nothing. `multusctl try` and
// `multusctl plan` call it; printing is theirs.
package trial
