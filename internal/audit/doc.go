// Package audit judges what a node keeps of its pods: which sandboxes nobody owns any
// more (orphans), and which running pods select networks although nothing on the node
// knows their sandbox (strays). It is pure: what is read from the disk, the API and the
// runtime goes in, a verdict comes out. In doubt it finds neither (design, rule 15).
//
// It reads and cleans nothing itself. Package daemon, its only caller, does.
package audit
