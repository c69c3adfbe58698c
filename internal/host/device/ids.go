package device

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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

// StableMAC returns the MAC address of a VF, derived only from the host, the PF and the VF's number, so that switches
// and licences see the same one each time. It is local and unicast (IEEE 802, bits 0x02 and 0x01 of the first octet).
func (h *Host) StableMAC(pf string, index int) net.HardwareAddr {
	s := h.digest("mac", pf, index)
	return net.HardwareAddr{s[0]&^0x03 | 0x02, s[1], s[2], s[3], s[4], s[5]}
}

// StableGUID returns the node or port GUID (kind) of an InfiniBand VF, derived like StableMAC. It is an EUI-64 with
// the local bit set (InfiniBand Architecture Specification, 4.1).
func (h *Host) StableGUID(kind, pf string, index int) net.HardwareAddr {
	s := h.digest(kind, pf, index)
	return net.HardwareAddr{s[0]&^0x03 | 0x02, s[1], s[2], s[3], s[4], s[5], s[6], s[7]}
}

func (h *Host) digest(kind, pf string, index int) [sha256.Size]byte {
	// The card's own address, if it has one, moves with the card into another slot.
	card := ""
	if own := h.ownInterface(pf); own != "" {
		card = h.attr(h.dev(pf, "net", own, "address"))
	}
	return sha256.Sum256(fmt.Appendf(nil, "nearmetal %s\n%s\n%s %s\n%d\n", kind, h.hostID(), pf, card, index))
}

// named is an attribute that nameVFs sets.
type named struct{ key, value string }

// namesOf returns the attributes of VF number index of a PF, in the order in which they are set. A VF of an
// InfiniBand card has the policy Down until another is set: its port would stay DOWN regardless of the cable and the
// subnet manager.
func (h *Host) namesOf(pf *Function, index int) []named {
	if pf.Link != "infiniband" {
		return []named{{"mac", h.StableMAC(pf.Address, index).String()}}
	}
	return []named{
		{"node-guid", h.StableGUID("node", pf.Address, index).String()},
		{"port-guid", h.StableGUID("port", pf.Address, index).String()},
		{"policy", "follow"},
	}
}

// nameVFs sets the addresses of a PF's n VFs; on InfiniBand their GUIDs, and that their links follow the card's. It
// fails if an InfiniBand card has no way to set them, because a VF without GUIDs never gets a link.
func (h *Host) nameVFs(pf *Function, n int) error {
	if !h.settable(pf) {
		if pf.Link == "infiniband" {
			return fmt.Errorf("device %s: its VFs would have no GUIDs, since the card has no IPoIB interface to set them by: modprobe mlx5_ib ib_ipoib, then again", pf.Address)
		}
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i < n; i++ {
		for _, a := range h.namesOf(pf, i) {
			if a.key != "policy" && seen[a.value] { // one in 2^46 per pair; a second VF with it would receive nothing
				return fmt.Errorf("device %s: VF %d would have the %s of another: set it by hand", pf.Address, i, a.key)
			}
			seen[a.value] = true
			err := h.setVF(pf.Address, i, a.key, a.value)
			if a.key == "policy" && errors.Is(err, unix.EOPNOTSUPP) {
				continue // a driver without policies: its VFs' links follow the card's
			}
			if err != nil {
				return fmt.Errorf("device %s: VF %d: %s: %w", pf.Address, i, a.key, err)
			}
		}
	}
	return nil
}
