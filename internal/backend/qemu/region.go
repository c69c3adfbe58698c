package qemu

import (
	"fmt"
	"math/bits"

	"nearmetal/internal/plan"
)

// region is the memory that the VMs of a host share, and the device that presents it.
type region struct {
	plan.Region
	FD int
}

func (r region) Valid() error {
	if r.FD < firstFD {
		return fmt.Errorf("region: %w", errNoFD)
	}
	if r.SizeBytes < mib || bits.OnesCount64(r.SizeBytes) != 1 || r.SizeBytes > 1<<40 {
		return fmt.Errorf("region of %d bytes: a power of two from 1 MiB to 1 TiB", r.SizeBytes)
	}
	if r.Device != "ivshmem" && r.Device != "devdax" {
		return fmt.Errorf("region: unknown device %.40q", r.Device)
	}
	if r.Device == "devdax" && r.SizeBytes < 16*mib {
		return fmt.Errorf("region of %s as devdax: at least 16 MiB", size(r.SizeBytes))
	}
	if r.HostNode < -1 || r.HostNode > 1023 {
		return fmt.Errorf("region: host node %d", r.HostNode)
	}
	return nil
}

func (r region) Args() []string {
	mem := []string{"id=region", "mem-path=" + fdPath(r.FD), "size=" + size(r.SizeBytes), "share=on"}
	if r.HostNode >= 0 {
		mem = append(mem, fmt.Sprintf("host-nodes=%d", r.HostNode), "policy=bind")
	}
	device := "ivshmem-plain,memdev=region"
	if r.Device == "devdax" {
		device = "nvdimm,id=nvdimm0,memdev=region"
	}
	return []string{"-object", option("memory-backend-file", mem...), "-device", device}
}
