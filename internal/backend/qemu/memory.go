package qemu

import (
	"fmt"
)

// memory is how much of it the VM has.
type memory struct {
	Bytes uint64
	Slots int    // for NVDIMMs
	Extra uint64 // bytes of NVDIMMs
	// Shared: other processes can map it, as one at the other end of a vhost-user device does. NUMA nodes have
	// backends of their own.
	Shared bool
}

// minMemory is what a distribution's kernel with its agent and a root in memory comes up in.
const minMemory = 96 * mib

func (m memory) Valid() error {
	switch {
	case m.Bytes < minMemory:
		return fmt.Errorf("memory of %s: at least %s", size(m.Bytes), size(minMemory))
	case m.Bytes%mib != 0:
		return fmt.Errorf("memory of %d bytes: a multiple of 1 MiB", m.Bytes)
	case m.Bytes > 1<<46 || m.Extra > 1<<46:
		return fmt.Errorf("memory of %s: at most 64 TiB", size(max(m.Bytes, m.Extra)))
	}
	return nil
}

// sharedMemory is the id of the backend of shared memory.
const sharedMemory = "ram0"

func (m memory) Args() []string {
	var args []string
	if m.Shared {
		args = []string{"-object", option("memory-backend-memfd", "id="+sharedMemory, "size="+size(m.Bytes), "share=on")}
	}
	if m.Slots == 0 {
		return append(args, "-m", option("size="+size(m.Bytes)))
	}
	// Room for each NVDIMM to be aligned in.
	top := m.Bytes + m.Extra + uint64(m.Slots)<<30
	return append(args, "-m", option("size="+size(m.Bytes), fmt.Sprintf("slots=%d", m.Slots), "maxmem="+size(top)))
}
