package qemu

// iommu is a virtual VT-d with interrupt remapping, without which more than 255 vCPUs cannot be interrupted.
type iommu struct {
	// Devices: functions of the host are behind it. QEMU rejects them unless the guest announces each change of its
	// mappings (caching mode).
	Devices bool
}

func (iommu) Valid() error { return nil }

func (u iommu) Args() []string {
	words := []string{"intremap=on", "eim=on"}
	if u.Devices {
		words = append(words, "caching-mode=on")
	}
	return []string{"-device", option("intel-iommu", words...)}
}
