// Package deploy holds the promises of the folder deploy/: what it makes, with which
// privileges, and that it takes the place of what Multus v4 installed. samples/ are
// manifests as people have them, with our image in place of theirs. The package has
// tests only; the configurations in deploy/ are held by internal/config.
package deploy
