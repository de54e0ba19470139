// Package config reads the node's configuration: the daemon's file
// (daemon-config.json), the plugin's own CNI configuration (the runtime's stdin:
// 00-multus.conf), and the overlay of the first on the second. One strict decoder
// reads all of them: a key of the wrong type or an impossible combination is a
// one-line error that names the key, what was expected and what was found;
// everything wrong is reported at once; unknown keys are warnings.
//
// A Config is immutable after Parse. The package reads no files and no environment.
package config
