// Package multusctl holds the commands of multusctl: their flags, and how they print.
// What they do is done elsewhere: try and plan by package trial; status, doctor and bundle by
// nodestate, uninstall by install; migrate by migrate, and its --check by nodestate.
//
// `try` starts multusctl a second time, as the first process of the trial's node
// (the hidden command "node"), because a process enters a PID namespace by being born
// in it. The two hold the ends of a socket: the node ends when the first multusctl is
// gone, and with --keep says on it that it stays.
package multusctl
