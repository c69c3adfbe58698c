package qemu

// iommu is a virtual VT-d with interrupt remapping: more than 255 vCPUs cannot be interrupted without.
type iommu struct{}

func (iommu) Valid() error { return nil }

func (iommu) Args() []string {
	return []string{"-device", "intel-iommu,intremap=on,eim=on"}
}
