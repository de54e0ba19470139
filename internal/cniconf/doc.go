// Package cniconf holds one CNI network configuration as a value that never
// loses anything: unknown keys, key order and numbers of any size survive every
// edit, because an edit replaces the raw text of single members and leaves the
// rest of the bytes as they were written.
//
// It does not read files, choose networks or run plugins. The plan builder edits
// configurations with it; the runner builds each plugin's stdin with it.
//
// Shapes follow the CNI specification 1.1.0, sections 1 (network configuration
// format) and 3 (deriving execution configuration).
package cniconf
