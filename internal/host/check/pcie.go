package check

import "encoding/binary"

// pcie is the content of a PCI Express device control register (PCI Express Base Specification, section 7.5.3.4).
type pcie struct {
	payload int // maximum bytes of a write
	request int // maximum bytes that a read requests
	relaxed bool
}

// parsePCIe finds the register in a device's configuration space. ok is false if the device is not PCI Express, or if
// the space is truncated, as it is for users other than root.
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
	for n := 0; n < 48 && at >= 0x40 && at+control+2 <= 256; n++ { // 48: as many as fit
		if config[at] == express {
			v := binary.LittleEndian.Uint16([]byte(config[at+control : at+control+2]))
			return pcie{payload: 128 << (v >> 5 & 7), request: 128 << (v >> 12 & 7), relaxed: v>>4&1 != 0}, true
		}
		at = int(config[at+1]) &^ 3
	}
	return p, false
}
