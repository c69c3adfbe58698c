package qemu

// iommu is a virtual VT-d with interrupt remapping: more than 255 vCPUs cannot be interrupted without.
type iommu struct{}

// iommuAbove is the x2APIC ID above which one is needed (see lower).
const iommuAbove = 254

func (iommu) Valid() error { return nil }

func (iommu) Args() []string {
	return []string{"-device", "intel-iommu,intremap=on,eim=on"}
}
