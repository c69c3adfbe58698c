package qemu

// iommu is a virtual VT-d with interrupt remapping: more than 255 vCPUs cannot be interrupted without.
type iommu struct{}

// iommuAbove is the number of vCPUs above which one is needed; a plan may say so for fewer, by their APIC IDs.
const iommuAbove = 255

func (iommu) Valid() error { return nil }

func (iommu) Args() []string {
	return []string{"-device", "intel-iommu,intremap=on,eim=on"}
}
