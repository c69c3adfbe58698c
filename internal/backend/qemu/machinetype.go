package qemu

// machineType is the machine's type, q35, with what is switched off in it.
type machineType struct {
	Off      []string // properties: i8042, sata, smbus
	Memory   string   // the id of the backend of all its memory; "": its own, or the nodes'
	NVDIMM   bool
	DieCache bool // say that a die is what shares a last-level cache; by itself, QEMU means that too
	SplitIRQ bool // an IOMMU's interrupt remapping needs it, with KVM
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
	// A guest's memory is in no core dump, and is not searched for pages to merge.
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
