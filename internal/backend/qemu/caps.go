package qemu

import (
	"fmt"
	"slices"

	"nearmetal/internal/backend"
)

// Version of a QEMU.
type Version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
	Micro int `json:"micro"`
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// minVersion is the oldest QEMU that nearmetal runs with: -netdev stream came with 7.2.
var minVersion = Version{Major: 7, Minor: 2}

// less says whether v is older than w.
func (v Version) less(w Version) bool {
	return slices.Compare([]int{v.Major, v.Minor, v.Micro}, []int{w.Major, w.Minor, w.Micro}) < 0
}

// Caps is what an installed QEMU can do.
type Caps struct {
	Path         string   `json:"path"` // of the program
	Version      Version  `json:"version"`
	Package      string   `json:"package"`      // the distribution's version, for messages
	Accels       []string `json:"accels"`       // kvm, tcg
	Devices      []string `json:"devices"`      // those of probedDevices that are there
	Netdevs      []string `json:"netdevs"`      // stream, tap, user, …
	MachineProps []string `json:"machineProps"` // those of probedProps that q35 has
	Sandbox      bool     `json:"sandbox"`      // built with seccomp
	SMPCache     bool     `json:"smpCache"`     // q35 has smp-cache, from QEMU 9.2 on
	Qboot        string   `json:"qboot"`        // path of the small firmware, or ""
	Q35          bool     `json:"q35"`

	// Virtiofsd is this host's; the zero value: none that can be used, and Why says what to do. They are not
	// QEMU's, and are found anew each time.
	Virtiofsd    virtiofsd `json:"-"`
	VirtiofsdWhy string    `json:"-"`
	// Passt is the path of this host's passt, which is the user network where QEMU has none; "": there is none.
	Passt string `json:"-"`
}

// probedDevices are the devices that a VM may need.
var probedDevices = []string{
	"intel-iommu", "ivshmem-plain", "nvdimm", "pcie-root-port", "pxb-pcie", "vfio-pci",
	"vhost-user-fs-pci", "virtio-9p-pci", "virtio-net-pci", "virtio-serial-pci", "virtserialport",
}

// probedProps are the properties of the machine type that save time where they are there.
var probedProps = []string{"i8042", "sata", "smbus"}

// smpCache is the machine type's property that says which CPUs share a cache.
const smpCache = "smp-cache"

// need fails unless the device is there; why says what it is for, and cure what to go without it.
func (c Caps) need(device, why, cure string) error {
	if slices.Contains(c.Devices, device) {
		return nil
	}
	return fmt.Errorf("%s (%s) has no %s, which is needed for %s: %s", c.Path, c.Version, device, why, cure)
}

// noVirtiofsd is why there is no virtiofsd that can be used.
func (c Caps) noVirtiofsd() string {
	if c.VirtiofsdWhy == "" {
		return whatServesFiles
	}
	return c.VirtiofsdWhy
}

// UserNet says whether this QEMU has the user network (slirp), which some builds leave out.
func (c Caps) UserNet() bool { return slices.Contains(c.Netdevs, string(backend.LinkUser)) }

// passt returns the program that is the user network in place of QEMU's; "": QEMU's own is taken, or there is none.
func (c Caps) passt() string {
	if c.UserNet() {
		return ""
	}
	return c.Passt
}

// Ivshmem says whether this QEMU can show a region as an ivshmem device; Red Hat's cannot.
func (c Caps) Ivshmem() bool { return slices.Contains(c.Devices, "ivshmem-plain") }
