package qemu

import (
	"fmt"
)

// memory is the size of the VM's memory.
type memory struct {
	Bytes uint64
	Slots int    // number of NVDIMM slots
	Extra uint64 // total bytes of the NVDIMMs
	// Shared: other processes can map it, as the other end of a vhost-user device does. NUMA nodes have backends of
	// their own.
	Shared bool
}

// minMemory is sufficient for a distribution's kernel to boot with its agent and a root in memory.
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

// sharedMemory is the ID of the backend of shared memory.
const sharedMemory = "ram0"

func (m memory) Args() []string {
	var args []string
	if m.Shared {
		args = []string{"-object", option("memory-backend-memfd", "id="+sharedMemory, "size="+size(m.Bytes), "share=on")}
	}
	if m.Slots == 0 {
		return append(args, "-m", option("size="+size(m.Bytes)))
	}
	// The addition leaves room to align each NVDIMM.
	top := m.Bytes + m.Extra + uint64(m.Slots)<<30
	return append(args, "-m", option("size="+size(m.Bytes), fmt.Sprintf("slots=%d", m.Slots), "maxmem="+size(top)))
}
