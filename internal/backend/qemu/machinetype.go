package qemu

// machineType is the machine's type, q35, with the features that are switched off.
type machineType struct {
	Off      []string // properties: i8042, sata, smbus
	Memory   string   // ID of the backend of all its memory; "": its own, or the nodes'
	NVDIMM   bool
	DieCache bool // state that the CPUs of a die share a last-level cache, which is also QEMU's default
	SplitIRQ bool // required by an IOMMU's interrupt remapping under KVM
}

func (m machineType) Valid() error {
	for _, p := range m.Off {
		if err := validID("machine property", p, 40); err != nil {
			return err
		}
	}
	return nil
}

func (m machineType) Args() []string {
	opts := []string{}
	for _, p := range m.Off {
		opts = append(opts, p+"=off")
	}
	// A guest's memory is not part of core dumps, and is not searched for pages to merge.
	opts = append(opts, "dump-guest-core=off", "mem-merge=off")
	if m.Memory != "" {
		opts = append(opts, "memory-backend="+m.Memory)
	}
	if m.NVDIMM {
		opts = append(opts, "nvdimm=on")
	}
	if m.DieCache {
		opts = append(opts, smpCache+".0.cache=l3", smpCache+".0.topology=die")
	}
	if m.SplitIRQ {
		opts = append(opts, "kernel-irqchip=split")
	}
	return []string{"-machine", option("q35", opts...)}
}
