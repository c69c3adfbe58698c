package qemu

import (
	"fmt"
	"slices"

	"nearmetal/internal/backend"
)

// Version is the version of a QEMU.
type Version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
	Micro int `json:"micro"`
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// minVersion is the oldest QEMU that nearmetal runs with: -netdev stream came with 7.2.
var minVersion = Version{Major: 7, Minor: 2}

// less reports whether v is older than w.
func (v Version) less(w Version) bool {
	return slices.Compare([]int{v.Major, v.Minor, v.Micro}, []int{w.Major, w.Minor, w.Micro}) < 0
}

// Caps lists the capabilities of an installed QEMU.
type Caps struct {
	Path         string   `json:"path"` // path of the program
	Version      Version  `json:"version"`
	Package      string   `json:"package"`      // the distribution's version, for messages
	Accels       []string `json:"accels"`       // kvm, tcg
	Devices      []string `json:"devices"`      // available ones of probedDevices
	Netdevs      []string `json:"netdevs"`      // stream, tap, user, …
	MachineProps []string `json:"machineProps"` // q35's ones of probedProps
	Sandbox      bool     `json:"sandbox"`      // built with seccomp
	SMPCache     bool     `json:"smpCache"`     // q35 has smp-cache, from QEMU 9.2 on
	Qboot        string   `json:"qboot"`        // path of the small firmware, or ""
	Q35          bool     `json:"q35"`

	// Virtiofsd is this host's; the zero value: none is usable, and Why states the remedy. Virtiofsd and Passt are
	// not part of QEMU, and are searched each time.
	Virtiofsd    virtiofsd `json:"-"`
	VirtiofsdWhy string    `json:"-"`
	// Passt is the path of this host's passt, which provides the user network if QEMU has none; "": not installed.
	Passt string `json:"-"`
}

// probedDevices are the devices that a VM may need.
var probedDevices = []string{
	"intel-iommu", "ivshmem-plain", "nvdimm", "pcie-root-port", "pxb-pcie", "vfio-pci",
	"vhost-user-fs-pci", "virtio-9p-pci", "virtio-net-pci", "virtio-serial-pci", "virtserialport",
}

// probedProps are the properties of the machine type whose presence saves time.
var probedProps = []string{"i8042", "sata", "smbus"}

// smpCache is the machine type's property that states which CPUs share a cache.
const smpCache = "smp-cache"

// need returns an error unless the device is available; why states its purpose, and cure the alternative.
func (c Caps) need(device, why, cure string) error {
	if slices.Contains(c.Devices, device) {
		return nil
	}
	return fmt.Errorf("%s (%s) has no %s, which is needed for %s: %s", c.Path, c.Version, device, why, cure)
}

// noVirtiofsd returns the reason why no virtiofsd is usable.
func (c Caps) noVirtiofsd() string {
	if c.VirtiofsdWhy == "" {
		return whatServesFiles
	}
	return c.VirtiofsdWhy
}

// UserNet reports whether this QEMU has the user network (slirp), which some builds omit.
func (c Caps) UserNet() bool { return slices.Contains(c.Netdevs, string(backend.LinkUser)) }

// passt returns the program that provides the user network instead of QEMU; "": QEMU does, or none exists.
func (c Caps) passt() string {
	if c.UserNet() {
		return ""
	}
	return c.Passt
}

// Ivshmem reports whether this QEMU can present a region as an ivshmem device; Red Hat's cannot.
func (c Caps) Ivshmem() bool { return slices.Contains(c.Devices, "ivshmem-plain") }
