// Package all has every back end of nearmetal: a program that imports it can open them by name. That of vSphere is in a
// program of its own (build tag vsphere), since govmomi's start takes time.
package all

import (
	_ "nearmetal/internal/backend/libvirt"
	_ "nearmetal/internal/backend/qemu" // the default
)
