package session

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
)

// Caller is a command to run in a VM as the calling process would run it: its user and
// groups, working directory, file mode mask and limits.
func Caller(args, env []string) guest.Exec {
	e := guest.Exec{Args: args, Env: env, DirOptional: true, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	e.Dir, _ = os.Getwd()
	if groups, err := os.Getgroups(); err == nil {
		for _, g := range groups {
			e.Groups = append(e.Groups, uint32(g))
		}
	}
	mask := uint32(umask())
	e.Umask = &mask
	e.Rlimits = limits()
	return e
}

// umask reads the mask, which there is no call for that does not also set it.
func umask() int {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return mask
}

// limits are those that users set and programs feel, as srun passes them on (slurm.conf,
// PropagateResourceLimits). Locked memory is unlimited in a VM: it is the VM's own, and
// RDMA needs it.
func limits() []guest.Rlimit {
	list := []guest.Rlimit{{Name: "memlock", Soft: guest.Unlimited, Hard: guest.Unlimited}}
	for _, l := range []struct {
		name string
		res  int
	}{{"stack", unix.RLIMIT_STACK}, {"core", unix.RLIMIT_CORE}, {"nofile", unix.RLIMIT_NOFILE}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.res, &r) != nil {
			continue
		}
		if l.res == unix.RLIMIT_NOFILE { // a kernel's own bound, fs.nr_open, is 1 Mi unless raised
			r.Cur, r.Max = min(r.Cur, 1<<20), min(r.Max, 1<<20)
		}
		list = append(list, guest.Rlimit{Name: l.name, Soft: r.Cur, Hard: r.Max})
	}
	return list
}
