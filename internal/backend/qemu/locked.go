package qemu

import (
	"fmt"

	"golang.org/x/sys/unix"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// lockedSlack is the memory that a VM with devices locks in addition to its memory and region, in bytes: ROMs, video
// memory and the like.
const lockedSlack = 64 << 20

// checkLocked returns an error if this process may not lock the memory of a VM with devices: VFIO pins all of it, and
// counts it against the limit of each QEMU (RLIMIT_MEMLOCK; kernel, drivers/vfio/vfio_iommu_type1.c). A soft limit
// that is too low is raised.
func checkLocked(p *plan.Plan) error {
	need, all, who := lockedBytes(p)
	if need == 0 || mayLockAll() {
		return nil
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return err
	}
	switch cur := lockedLimit(l, need); {
	case cur == l.Cur && cur >= need:
		return nil
	case cur >= need:
		l.Cur = cur
		return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
	return fmt.Errorf("the limit on locked memory is %s, and VFIO locks all memory of a VM with devices: %s for %s, %s for all VMs; raise it (in /etc/security/limits.d: * hard memlock unlimited; LimitMEMLOCK=infinity for a service such as slurmd) and log in again",
		spec.Size(l.Max), spec.Size(need), who, spec.Size(all))
}

// lockedBytes returns the bytes that VFIO locks: for the VM with the most, called who, and for all.
func lockedBytes(p *plan.Plan) (need, all uint64, who string) {
	for i := range p.VMs {
		v := &p.VMs[i]
		if len(v.Devices) == 0 {
			continue
		}
		n := v.MemoryBytes + lockedSlack
		if p.Region != nil {
			n += p.Region.SizeBytes
		}
		all += n
		if n > need {
			need, who = n, v.Name
		}
	}
	return need, all, who
}

// lockedLimit returns the soft limit with which need bytes can be locked, or the existing one if the hard limit does
// not suffice.
func lockedLimit(l unix.Rlimit, need uint64) uint64 {
	if l.Cur < need && l.Max >= need {
		return l.Max
	}
	return l.Cur
}

// mayLockAll reports whether limits on locked memory do not bind this process: it has CAP_IPC_LOCK, capability 14
// (capabilities(7)), as root does.
func mayLockAll() bool {
	const capIPCLock = 14
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[0].Effective&(1<<capIPCLock) != 0
}
