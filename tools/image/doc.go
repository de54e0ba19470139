// Command mkimage builds the container images without Docker: it compiles the
// programs for each platform, lays them out at the paths that manifests know,
// and writes OCI archives and layouts whose digests depend on the commit, the Go
// release and the recorded packages only.
//
// The one list of what an image holds is in contents.go. The Dockerfiles in
// image/ copy what `mkimage -rootfs` writes, so they cannot differ from it.
//
// It pushes nothing and signs nothing. `make image` calls it; docs/images.md is
// the guide.
package main
