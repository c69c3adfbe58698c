// Package all has every backend of nearmetal: a program that imports it can open them by name. Those of vSphere and
// OpenStack are in a program of their own (build tag vsphere), since their libraries take time at a start.
package all

import (
	_ "nearmetal/internal/backend/libvirt"
	_ "nearmetal/internal/backend/qemu" // the default
)
