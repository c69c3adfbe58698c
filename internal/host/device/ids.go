package device

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"strings"
)

// hostID identifies this host: machine-id(5), or the host's name.
func (h *Host) hostID() string {
	b, err := os.ReadFile(h.path("/etc/machine-id"))
	if id := strings.TrimSpace(string(b)); err == nil && len(id) == 32 {
		return id
	}
	name, _ := os.Hostname()
	return name
}

// StableMAC is the MAC address of a VF: a function of the host, the PF and the VF's number
// alone, so that switches and licences see the same one each time. It is local and unicast
// (IEEE 802, bits 0x02 and 0x01 of the first octet).
func (h *Host) StableMAC(pf string, index int) net.HardwareAddr {
	s := h.digest("mac", pf, index)
	return net.HardwareAddr{s[0]&^0x03 | 0x02, s[1], s[2], s[3], s[4], s[5]}
}

// StableGUID is the node or port GUID (kind) of an InfiniBand VF, made like StableMAC. It is an
// EUI-64 with the local bit set (InfiniBand Architecture Specification, 4.1).
func (h *Host) StableGUID(kind, pf string, index int) net.HardwareAddr {
	s := h.digest(kind, pf, index)
	return net.HardwareAddr{s[0]&^0x03 | 0x02, s[1], s[2], s[3], s[4], s[5], s[6], s[7]}
}

func (h *Host) digest(kind, pf string, index int) [sha256.Size]byte {
	// The card's own address, where it has one, goes with the card into another slot.
	card := ""
	if n := h.interfaces(pf, "net"); len(n) > 0 {
		card = h.attr(h.dev(pf, "net", n[0], "address"))
	}
	return sha256.Sum256(fmt.Appendf(nil, "nearmetal %s\n%s\n%s %s\n%d\n", kind, h.hostID(), pf, card, index))
}

// nameVFs sets the addresses of a PF's n VFs, or their GUIDs on InfiniBand.
func (h *Host) nameVFs(pf *Function, n int) error {
	if !h.settable(pf) {
		return nil
	}
	seen := [][]byte{}
	for i := 0; i < n; i++ {
		set := map[string]net.HardwareAddr{}
		if pf.Link == "infiniband" {
			set["node-guid"], set["port-guid"] = h.StableGUID("node", pf.Address, i), h.StableGUID("port", pf.Address, i)
		} else {
			set["mac"] = h.StableMAC(pf.Address, i)
		}
		for key, a := range set {
			for _, s := range seen {
				if bytes.Equal(s, a) { // one in 2^46 a pair; a second VF with it would be deaf
					return fmt.Errorf("device %s: VF %d would have the %s of another: set it by hand", pf.Address, i, key)
				}
			}
			seen = append(seen, a)
			if err := h.setVF(pf.Address, i, key, a.String()); err != nil {
				return fmt.Errorf("device %s: VF %d: %w", pf.Address, i, err)
			}
		}
	}
	return nil
}
