// Package vsphere is the backend for virtual machines of a vCenter or of a single ESXi host, reached by govmomi.
//
// govmomi registers some thousand types when a program starts, which would make nearmetal's start half as long again. So the
// package is in a program of its own, nearmetal-vsphere, which nearmetal becomes where vSphere is meant (docs/architecture.md).
// No real ESXi host was reached by it so far: its tests run against govmomi's simulator, vcsim.
package vsphere
