// Package vsphere is the backend for virtual machines of a vCenter or of a single ESXi host, reached by govmomi.
//
// govmomi registers some thousand types when a program starts, which would make nearmetal's start half as long again.
// Therefore the package is in a separate program, nearmetal-vsphere, which nearmetal executes when vSphere is used
// (docs/architecture.md). Not tested on a real ESXi host: the tests run against govmomi's simulator, vcsim.
package vsphere
