// Package all links every backend of nearmetal, so that a program that imports it can open them by name. The backends
// for vSphere and OpenStack are in a separate program (build tag vsphere), because their libraries slow down the
// start.
package all

import (
	_ "nearmetal/internal/backend/libvirt"
	_ "nearmetal/internal/backend/qemu" // the default
)
