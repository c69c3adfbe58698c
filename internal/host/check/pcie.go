package check

import "encoding/binary"

// pcie is what a PCI Express device control register says (PCI Express Base Specification,
// section 7.5.3.4).
type pcie struct {
	payload int // bytes a write may carry
	request int // bytes a read may ask for
	relaxed bool
}

// parsePCIe finds the register in a device's configuration space. ok is false where the
// device is not PCI Express, or the space was cut short, as it is for users other than root.
func parsePCIe(config string) (p pcie, ok bool) {
	const (
		capabilities = 0x34 // offset of the first capability's pointer
		express      = 0x10 // capability ID
		control      = 8    // offset of Device Control in the capability
	)
	if len(config) < 256 {
		return p, false
	}
	at := int(config[capabilities]) &^ 3
	for n := 0; n < 48 && at >= 0x40 && at+control+2 <= 256; n++ { // 48: as many as there is room for
		if config[at] == express {
			v := binary.LittleEndian.Uint16([]byte(config[at+control : at+control+2]))
			return pcie{payload: 128 << (v >> 5 & 7), request: 128 << (v >> 12 & 7), relaxed: v>>4&1 != 0}, true
		}
		at = int(config[at+1]) &^ 3
	}
	return p, false
}
