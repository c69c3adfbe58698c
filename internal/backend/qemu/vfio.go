package qemu

import (
	"fmt"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/lazyregexp"
)

// pciAddress matches a function's full address.
var pciAddress = lazyregexp.New(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// expander is a PCIe host bridge of its own (pxb-pcie), so that the devices below it are on a guest node.
type expander struct {
	ID   string
	Bus  int // its bus number; those below follow
	Node int // guest node
}

func (e expander) Valid() error {
	if e.Bus < lower.FirstBus || e.Bus > 255 || e.Node < 0 {
		return fmt.Errorf("PCIe expander %s: bus %d, node %d", e.ID, e.Bus, e.Node)
	}
	return validID("PCIe expander", e.ID, 40)
}

func (e expander) Args() []string {
	return []string{"-device", option("pxb-pcie", "id="+e.ID, "bus=pcie.0", fmt.Sprintf("bus_nr=%d", e.Bus), fmt.Sprintf("numa_node=%d", e.Node))}
}

// mmioWindow is the room for the devices' 64-bit BARs.
type mmioWindow struct{ Bytes uint64 }

func (w mmioWindow) Valid() error {
	if w.Bytes%(1<<30) != 0 || w.Bytes > 1<<46 {
		return fmt.Errorf("MMIO window of %d bytes: whole GiB, at most 64 TiB", w.Bytes)
	}
	return nil
}

func (w mmioWindow) Args() []string {
	return []string{"-global", "q35-pcihost.pci-hole64-size=" + size(w.Bytes)}
}

// rootPort is a PCIe slot.
type rootPort struct {
	ID      string
	Bus     string // pcie.0, or an expander's id
	Chassis int    // its number, unique in the machine
}

func (p rootPort) Valid() error {
	if p.Chassis < 1 || p.Chassis > 255 {
		return fmt.Errorf("root port %s: chassis %d: 1 to 255", p.ID, p.Chassis)
	}
	return validID("root port", p.ID, 40)
}

func (p rootPort) Args() []string {
	return []string{"-device", option("pcie-root-port", "id="+p.ID, "bus="+p.Bus, fmt.Sprintf("chassis=%d", p.Chassis))}
}

// hostDevice is a PCI function of the host, passed through.
type hostDevice struct {
	Address string // 0000:41:10.0
	Port    string // its root port
	HideROM bool   // the guest does not see its option ROM
}

func (d hostDevice) Valid() error {
	if !pciAddress().MatchString(d.Address) {
		return fmt.Errorf("device %.40q: not a PCI address like 0000:41:10.0", d.Address)
	}
	return validID("root port", d.Port, 40)
}

func (d hostDevice) Args() []string {
	words := []string{"host=" + d.Address, "bus=" + d.Port}
	if d.HideROM {
		words = append(words, "rombar=0")
	}
	return []string{"-device", option("vfio-pci", words...)}
}
