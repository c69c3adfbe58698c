package domain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
)

// NoUSB returns the controller element that keeps libvirt from adding a USB controller.
func NoUSB() libvirtxml.DomainController {
	return libvirtxml.DomainController{Type: "usb", Model: "none"}
}

// buses is the number of PCI buses of a machine.
const buses = 256

// AddDevices adds a VM's devices to a domain: each in a root port, behind the expander of its planned node, and the
// window for their BARs. Controllers get indices above the domain's existing ones, and expanders bus numbers above
// them. Host devices and network cards that the domain already has are moved there.
func AddDevices(d *libvirtxml.Domain, vm *plan.VM, low lower.Machine) error {
	if low.MMIO > lower.DefaultWindow {
		setHole(d, low.MMIO)
	}
	next := uint(1)
	chassis := uint(1)
	first := uint(lower.FirstBus)
	for i := range d.Devices.Controllers {
		c := &d.Devices.Controllers[i]
		if c.Type != "pci" {
			continue
		}
		if c.Index != nil {
			next = max(next, *c.Index+1)
		}
		if c.PCI != nil && c.PCI.Target != nil && c.PCI.Target.Chassis != nil {
			chassis = max(chassis, *c.PCI.Target.Chassis+1)
		}
		if c.PCI != nil && c.PCI.Target != nil && c.PCI.Target.BusNr != nil && *c.PCI.Target.BusNr < buses {
			first = max(first, (*c.PCI.Target.BusNr+buses)/2) // an expander keeps half of the bus numbers above its own
		}
	}
	add := func(c libvirtxml.DomainController) uint {
		index := next
		c.Type, c.Index = "pci", &index
		d.Devices.Controllers = append(d.Devices.Controllers, c)
		next++
		return index
	}
	behind := map[int]bool{}
	slots := func(bus *uint, devices []int) error {
		for slot, i := range devices {
			host, err := address(vm.Devices[i].Address)
			if err != nil {
				return err
			}
			behind[i] = true
			number := chassis
			port := libvirtxml.DomainController{
				Model: "pcie-root-port",
				PCI: &libvirtxml.DomainControllerPCI{
					Model:  &libvirtxml.DomainControllerPCIModel{Name: "pcie-root-port"},
					Target: &libvirtxml.DomainControllerPCITarget{Chassis: &number},
				},
			}
			if bus != nil {
				port.Address = at(*bus, uint(slot))
			}
			chassis++
			index := add(port)
			place(d, host, at(index, 0), vm.Devices[i].HideROM)
		}
		return nil
	}
	sorted := slices.Clone(low.Expanders)
	slices.SortFunc(sorted, func(a, b lower.Expander) int { return a.Node - b.Node })
	for _, x := range sorted {
		if 1+len(x.Devices) > (buses-int(first))/len(sorted) || len(x.Devices) > 32 {
			return errors.New("more devices than there are PCI buses for")
		}
		bus, node := uint(x.Bus), uint(x.Node)
		if first > lower.FirstBus {
			bus = first + (bus-lower.FirstBus)*(buses-first)/(buses-lower.FirstBus)
		}
		index := add(libvirtxml.DomainController{
			Model: "pcie-expander-bus",
			PCI: &libvirtxml.DomainControllerPCI{
				Model:  &libvirtxml.DomainControllerPCIModel{Name: "pxb-pcie"},
				Target: &libvirtxml.DomainControllerPCITarget{BusNr: &bus, NUMANode: &node},
			},
		})
		if err := slots(&index, x.Devices); err != nil {
			return err
		}
	}
	var own []int
	for i := range vm.Devices {
		if !behind[i] {
			own = append(own, i)
		}
	}
	return slots(nil, own)
}

// setHole sets the window for 64-bit BARs of the domain's root complex, unless it has a larger one.
func setHole(d *libvirtxml.Domain, bytes uint64) {
	hole := &libvirtxml.DomainControllerPCIHole64{Size: bytes >> 10, Unit: "KiB"}
	for i := range d.Devices.Controllers {
		if c := &d.Devices.Controllers[i]; c.Type == "pci" && c.Model == "pcie-root" {
			if c.PCI == nil {
				c.PCI = &libvirtxml.DomainControllerPCI{}
			}
			if own := c.PCI.Hole64; own == nil || own.Unit == "KiB" && own.Size < hole.Size {
				c.PCI.Hole64 = hole
			}
			return
		}
	}
	root := uint(0)
	d.Devices.Controllers = append(d.Devices.Controllers, libvirtxml.DomainController{
		Type: "pci", Index: &root, Model: "pcie-root", PCI: &libvirtxml.DomainControllerPCI{Hole64: hole},
	})
}

// place assigns a guest address to a function of the host, which is added to a domain that lacks it, without its option
// ROM if hideROM.
func place(d *libvirtxml.Domain, host *libvirtxml.DomainAddressPCI, guest *libvirtxml.DomainAddress, hideROM bool) {
	for i := range d.Devices.Hostdevs {
		h := &d.Devices.Hostdevs[i]
		if p := h.SubsysPCI; p != nil && p.Source != nil && p.Source.Address != nil && FormatAddress(p.Source.Address) == FormatAddress(host) {
			h.Address = guest
			return
		}
	}
	for i := range d.Devices.Interfaces {
		n := &d.Devices.Interfaces[i]
		if s := n.Source; s != nil && s.Hostdev != nil && s.Hostdev.PCI != nil && s.Hostdev.PCI.Address != nil && FormatAddress(s.Hostdev.PCI.Address) == FormatAddress(host) {
			n.Address = guest
			return
		}
	}
	var rom *libvirtxml.DomainROM
	if hideROM {
		rom = &libvirtxml.DomainROM{Bar: "off"}
	}
	d.Devices.Hostdevs = append(d.Devices.Hostdevs, libvirtxml.DomainHostdev{
		Managed: "no", // `nearmetal device` or the administrator has bound it to vfio-pci
		SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
			Driver: &libvirtxml.DomainHostdevSubsysPCIDriver{Name: "vfio"},
			Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: host},
		},
		ROM:     rom,
		Address: guest,
	})
}

// at returns the address of the first function of a slot on a guest bus.
func at(bus, slot uint) *libvirtxml.DomainAddress {
	domain, function := uint(0), uint(0)
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Domain: &domain, Bus: &bus, Slot: &slot, Function: &function}}
}

// address parses a PCI address, 0000:41:10.0.
func address(s string) (*libvirtxml.DomainAddressPCI, error) {
	var n [4]uint
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	for i, limit := range []uint{0xffff, 0xff, 0x1f, 7} {
		if len(fields) != 4 {
			return nil, fmt.Errorf("device %.40q: not a PCI address like 0000:41:10.0", s)
		}
		v, err := strconv.ParseUint(fields[i], 16, 16)
		if err != nil || uint(v) > limit {
			return nil, fmt.Errorf("device %.40q: not a PCI address like 0000:41:10.0", s)
		}
		n[i] = uint(v)
	}
	return &libvirtxml.DomainAddressPCI{Domain: &n[0], Bus: &n[1], Slot: &n[2], Function: &n[3]}, nil
}

// FormatAddress formats an address like package topology: 0000:41:10.0. Missing parts are 0.
func FormatAddress(a *libvirtxml.DomainAddressPCI) string {
	value := func(p *uint) uint {
		if p == nil {
			return 0
		}
		return *p
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", value(a.Domain), value(a.Bus), value(a.Slot), value(a.Function))
}

// regionSlot is the slot of the region's device on the root bus. By default libvirt would put it behind a
// conventional PCI bridge.
const regionSlot = 0x10

// addRegion adds the region's device: a file in /dev/shm by ivshmem, or by an NVDIMM.
func addRegion(d *libvirtxml.Domain, name string, r *plan.Region) {
	if r.Device != "devdax" {
		d.Devices.Shmems = append(d.Devices.Shmems, libvirtxml.DomainShmem{
			Name:    name,
			Model:   &libvirtxml.DomainShmemModel{Type: "ivshmem-plain"},
			Size:    &libvirtxml.DomainShmemSize{Value: uint(r.SizeBytes >> 20), Unit: "M"},
			Address: at(0, regionSlot),
		})
		return
	}
	path := "/dev/shm/" + name
	if r.Backing == "hugetlb" {
		path = "/dev/hugepages/" + name
	}
	AddNVDIMM(d, path, r.SizeBytes)
}

// AddNVDIMM adds a file of the given size in bytes as an NVDIMM, on the first cell.
func AddNVDIMM(d *libvirtxml.Domain, path string, bytes uint64) {
	// The addition leaves room to align the NVDIMM.
	d.MaximumMemory = &libvirtxml.DomainMaxMemory{Value: d.Memory.Value + uint((bytes+1<<30)>>10), Unit: "KiB", Slots: 1}
	if d.CPU.Numa == nil {
		// libvirt accepts no NVDIMM without a cell.
		id := uint(0)
		d.CPU.Numa = &libvirtxml.DomainNuma{Cell: []libvirtxml.DomainCell{{
			ID: &id, CPUs: fmt.Sprintf("0-%d", d.VCPU.Value-1), Memory: d.Memory.Value, Unit: "KiB",
		}}}
	}
	d.Devices.Memorydevs = append(d.Devices.Memorydevs, libvirtxml.DomainMemorydev{
		Model: "nvdimm", Access: "shared",
		Source: &libvirtxml.DomainMemorydevSource{Path: path},
		Target: &libvirtxml.DomainMemorydevTarget{
			Size: &libvirtxml.DomainMemorydevTargetSize{Value: uint(bytes >> 10), Unit: "KiB"},
			Node: &libvirtxml.DomainMemorydevTargetNode{Value: 0},
		},
	})
}
