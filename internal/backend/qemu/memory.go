package qemu

import (
	"fmt"
)

// memory is how much of it the VM has.
type memory struct {
	Bytes uint64
	Slots int    // for NVDIMMs
	Extra uint64 // bytes of NVDIMMs
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

func (m memory) Args() []string {
	if m.Slots == 0 {
		return []string{"-m", option("size=" + size(m.Bytes))}
	}
	// Room for each NVDIMM to be aligned in.
	top := m.Bytes + m.Extra + uint64(m.Slots)<<30
	return []string{"-m", option("size="+size(m.Bytes), fmt.Sprintf("slots=%d", m.Slots), "maxmem="+size(top))}
}
