package qemu

import (
	"errors"
	"fmt"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
)

// accelerator states how the VM's instructions run, and the CPU model.
type accelerator struct {
	Accel       host.Accel
	Dedicated   bool // every vCPU has a host CPU of its own: the guest may spin
	PhysBits    int  // width of physical addresses, 0: the default
	Leaves      bool // the guest's kernel sees the dies of a socket and the threads of a core
	SlowStrings bool // host.SlowStrings
}

func (a accelerator) Valid() error {
	if a.Accel != host.KVM && a.Accel != host.TCG {
		return fmt.Errorf("accelerator %q: neither kvm nor tcg", a.Accel)
	}
	if a.PhysBits != 0 && (a.PhysBits < 36 || a.PhysBits > 52) {
		return fmt.Errorf("physical addresses of %d bits: 36 to 52", a.PhysBits)
	}
	return nil
}

func (a accelerator) Args() []string {
	physBits := ""
	if a.PhysBits != 0 {
		physBits = fmt.Sprintf("phys-bits=%d", a.PhysBits)
	}
	if a.Accel == host.TCG {
		vendor := ""
		if a.Leaves {
			// TCG's own model is an AMD processor without the leaves that report dies, threads and caches there.
			vendor = "vendor=GenuineIntel"
		}
		// erms and fsrm are removed, because TCG runs rep movsb and stosb byte by byte, six to eight times slower
		// than any other copy.
		return []string{"-accel", option("tcg", fmt.Sprintf("tb-size=%d", lower.TCGCode)), "-cpu", option("max", "-erms", "-fsrm", vendor, physBits)}
	}
	cpu := []string{"migratable=off"}
	if a.Leaves {
		// On AMD hosts these leaves must be requested, and without them QEMU presents each thread as a core; on Intel
		// hosts QEMU ignores the request with a warning.
		cpu = append(cpu, "topoext=on")
	}
	if a.SlowStrings {
		cpu = append(cpu, "erms=off", "fsrm=off")
	}
	if a.Dedicated {
		cpu = append(cpu, "kvm-hint-dedicated=on")
	}
	if physBits != "" {
		cpu = append(cpu, "host-phys-bits=off", physBits)
	}
	return []string{"-accel", "kvm", "-cpu", option("host", cpu...)}
}

// smp is the number of vCPUs and their topology. Sockets × Dies × Cores × Threads is the maximum number of CPUs.
type smp struct {
	CPUs    int // present at the start
	Sockets int
	Dies    int // per socket
	Cores   int // per die
	Threads int // per core
}

// maxVCPUs is the maximum of q35 in every supported QEMU.
const maxVCPUs = 288

// withSpare adds room for a second CPU to a VM with one. With a single possible CPU, QEMU's TCG emits atomic
// operations and fences that are not atomic for other VMs on the same region. Only QEMU's maximum matters: kernels
// from 6.9 on do not count a CPU that is not present, and need not.
func (s smp) withSpare() smp {
	if s.CPUs == 1 && s.max() == 1 {
		s.Sockets = 2
	}
	return s
}

func (s smp) max() int { return s.Sockets * s.Dies * s.Cores * s.Threads }

func (s smp) Valid() error {
	for _, n := range []int{s.CPUs, s.Sockets, s.Dies, s.Cores, s.Threads} {
		if n < 1 || n > maxVCPUs {
			return fmt.Errorf("%d vCPUs as %d sockets × %d dies × %d cores × %d threads: each from 1 to %d", s.CPUs, s.Sockets, s.Dies, s.Cores, s.Threads, maxVCPUs)
		}
	}
	switch {
	case s.max() > maxVCPUs:
		return fmt.Errorf("%d vCPUs: at most %d", s.max(), maxVCPUs)
	case s.CPUs != s.max() && !(s.CPUs == 1 && s.max() == 2):
		return fmt.Errorf("%d vCPUs are not %d sockets × %d dies × %d cores × %d threads", s.CPUs, s.Sockets, s.Dies, s.Cores, s.Threads)
	case s.max() < 2:
		return errors.New("one possible vCPU: at least two, or atomic operations between VMs go wrong")
	}
	return nil
}

func (s smp) Args() []string {
	return []string{"-smp", fmt.Sprintf("cpus=%d,maxcpus=%d,sockets=%d,dies=%d,cores=%d,threads=%d",
		s.CPUs, s.max(), s.Sockets, s.Dies, s.Cores, s.Threads)}
}
