package guest

import "golang.org/x/sys/unix"

// Limits returns the limits of this process that users set and that affect programs, as passed on by srun
// (slurm.conf, PropagateResourceLimits). Locked memory is unlimited in a VM, because the memory is the VM's own, and
// RDMA needs it.
func Limits() []Rlimit {
	list := []Rlimit{{Name: "memlock", Soft: Unlimited, Hard: Unlimited}}
	for _, l := range []struct {
		name string
		res  int
	}{{"stack", unix.RLIMIT_STACK}, {"core", unix.RLIMIT_CORE}, {"nofile", unix.RLIMIT_NOFILE}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.res, &r) != nil {
			continue
		}
		if l.res == unix.RLIMIT_NOFILE { // the kernel's own bound, fs.nr_open, is 1 Mi unless raised
			r.Cur, r.Max = min(r.Cur, 1<<20), min(r.Max, 1<<20)
		}
		list = append(list, Rlimit{Name: l.name, Soft: r.Cur, Hard: r.Max})
	}
	return list
}
