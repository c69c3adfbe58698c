// Package device manages a host's PCI functions for VMs: it lists physical and virtual functions, makes and removes
// VFs, sets their attributes, and gives a function to a user for passthrough (vfio-pci). Every change is in a
// transaction of package change: on disk before it is made, undone by Release, or by change.Recover after a kill or a
// reboot.
//
// It uses the kernel's interfaces for all vendors (Documentation/ABI/testing/sysfs-bus-pci,
// Documentation/driver-api/vfio.rst, rtnetlink(7)); Mellanox' mstconfig adds the firmware's settings if it is
// installed.
package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/host/change"
	"nearmetal/internal/lazyregexp"
)

// Host is the host whose devices are read and changed.
type Host struct {
	root string // parent of sys, proc, dev, var and run; "" for this host
	wait time.Duration
	// Links has the VFs' attributes and the eswitch.
	Links Links
}

// waitFor bounds the kernel's own work: igb needs 19 s for two VFs on an emulated host.
const waitFor = 60 * time.Second

// Open returns the host below root, the directory of sys/; "" or "/" is this host. wait bounds one step of the
// kernel; 0: a minute.
func Open(root string, wait time.Duration) (*Host, error) {
	if wait <= 0 {
		wait = waitFor
	}
	h := &Host{wait: wait}
	if root != "" && root != "/" {
		abs, err := filepath.Abs(root)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return nil, err
		}
		h.root = abs
	}
	h.Links = linksOf(h.root)
	if _, err := os.Stat(h.path(pciDevices)); err != nil {
		return nil, fmt.Errorf("%s: no PCI devices to be seen: %w", h.path(pciDevices), errors.Unwrap(err))
	}
	return h, nil
}

// State returns the directory of the host's journals.
func (h *Host) State() string { return h.path(change.Dir) }

// Kind is the kind of a function.
type Kind string

// The kinds.
const (
	PF    Kind = "pf"   // a physical function that can have VFs
	VF    Kind = "vf"   // a virtual function
	Plain Kind = "full" // any other function
)

// Function is one PCI function.
type Function struct {
	Address string `json:"address"` // 0000:41:10.0
	Kind    Kind   `json:"kind"`
	Vendor  int    `json:"vendor"` // 16 bits
	Device  int    `json:"device"` // 16 bits
	Class   int    `json:"class"`  // 24 bits
	Driver  string `json:"driver,omitempty"`
	Node    int    `json:"node"`  // NUMA node, -1: not reported
	Group   int    `json:"group"` // IOMMU group, -1: no IOMMU
	// Others are the other functions of the group, without bridges.
	Others   []string `json:"others,omitempty"`
	PF       string   `json:"pf,omitempty"`   // for a VF: its physical function
	Index    int      `json:"index"`          // for a VF: its number, from 0; else -1
	TotalVFs int      `json:"totalVFs"`       // for a PF: the number of VFs it supports
	VFs      []string `json:"vfs,omitempty"`  // for a PF: its existing VFs, by number
	Net      []string `json:"net,omitempty"`  // network interfaces
	MAC      string   `json:"mac,omitempty"`  // of the first interface
	RDMA     []string `json:"rdma,omitempty"` // RDMA devices
	GUID     string   `json:"guid,omitempty"` // node GUID of the first RDMA device
	Link     string   `json:"link,omitempty"` // "infiniband" or "ethernet"
	Mbps     int      `json:"mbps,omitempty"` // rate of the link, Mbit/s; 0: not known or down
	Up       bool     `json:"up"`             // the link carries data
	Firmware string   `json:"firmware,omitempty"`
	PSID     string   `json:"psid,omitempty"` // the board's ID (Mellanox)
	VFIO     string   `json:"vfio,omitempty"` // /dev/vfio/8, of a function bound to vfio-pci
	Owner    string   `json:"owner,omitempty"`
	// Holder is the user of the function as a passed-through device; "": nobody.
	Holder string `json:"holder,omitempty"`
}

// address matches a full PCI address.
var address = lazyregexp.New(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// name matches a name that a user may specify: an address with or without its domain, a network interface or an RDMA
// device.
var name = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$`)

// Find returns the function with an address (the domain 0000 may be omitted), or with a network interface or an RDMA
// device of that name.
func (h *Host) Find(given string) (*Function, error) {
	if !name().MatchString(given) || strings.Contains(given, "..") {
		return nil, fmt.Errorf("%.70q is not a device's name, such as mlx5_0, ens1f0 or 0000:41:00.0", given)
	}
	at := strings.ToLower(given)
	if !address().MatchString(at) {
		at = "0000:" + at
	}
	if !address().MatchString(at) {
		at = ""
		for _, class := range []string{"net", "infiniband"} {
			if p, err := filepath.EvalSymlinks(h.path("sys/class", class, given, "device")); err == nil && address().MatchString(filepath.Base(p)) {
				at = filepath.Base(p)
			}
		}
	}
	if at == "" || !h.there(at) {
		return nil, fmt.Errorf("there is no device %q here: nearmetal device list shows those that are", given)
	}
	return h.read(at), nil
}

// List returns the functions for VMs: network and InfiniBand cards and all functions with VFs; with all, every
// function.
func (h *Host) List(all bool) ([]*Function, error) {
	names, err := h.names(pciDevices)
	if err != nil {
		return nil, err
	}
	var list []*Function
	for _, n := range names {
		if !address().MatchString(n) {
			continue
		}
		f := h.read(n)
		if all || f.Kind != Plain || f.network() {
			list = append(list, f)
		}
	}
	h.holders(list)
	return list, nil
}

// network recognises network and InfiniBand controllers (PCI code and ID assignment: classes 02 and 0c06).
func (f *Function) network() bool { return f.Class>>16 == 0x02 || f.Class>>8 == 0x0c06 }

// bridge recognises PCI bridges, which do not count in an IOMMU group.
func bridge(class int) bool { return class>>16 == 0x06 }

// Mellanox is the vendor whose firmware mstconfig sets.
const Mellanox = 0x15b3
