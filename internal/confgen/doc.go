// Package confgen makes the configuration that the container runtime loads,
// 00-multus.conf, and keeps it right: it chooses the primary network (Choose),
// derives the file's content (Generate), both pure, and watches the folders and
// writes the file (Watcher). Design rules 4, 6 and 7; contract 1.3b.
//
// It installs no binaries, resolves no NetworkAttachmentDefinitions and attaches
// nothing. The daemon runs one Watcher, and asks its State for readiness.
package confgen
