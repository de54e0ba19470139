// Package atomicfile replaces files so that nobody ever sees half of one: a
// temporary file in the same folder, written, synced, given its mode and renamed
// over the old one, then the folder synced (design rule 4).
//
// It decides nothing about content, and keeps no locks: two writers at once both
// succeed, and one of the two whole files is left. The installer and the generated
// configuration are written with it.
package atomicfile
