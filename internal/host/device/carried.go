package device

import "fmt"

// Carried returns the bytes that the VF with a PCI address has received and sent, as counted by its card for the
// host. Cards whose PF has no network interface, as for InfiniBand only, cannot be queried, because only the VF's own
// kernel counts there.
func (h *Host) Carried(at string) (received, sent uint64, err error) {
	if !address().MatchString(at) {
		return 0, 0, fmt.Errorf("%.40q is not a PCI address", at)
	}
	pf := h.target(h.dev(at, "physfn"))
	if !address().MatchString(pf) {
		return 0, 0, fmt.Errorf("%s is not a virtual function", at)
	}
	index, own := h.index(pf, at), h.ownInterface(pf)
	if index < 0 || own == "" {
		return 0, 0, fmt.Errorf("%s: its card has no network interface here", at)
	}
	return h.Links.Carried(own, index)
}
