package node

// Fault is a reason why a job's VMs do not boot.
type Fault struct {
	What   string // text of docs/slurm.md
	Drains bool   // the next job on the host would fail too
}

// Faults are all faults; a test compares them with the table of docs/slurm.md. Faults that this package reports have
// names; the plugin itself reports the others (slurm/boot.c, slurm/prolog.c).
var Faults = []Fault{
	{"options, cluster file, or what they ask for does not fit the allocation", false},
	{"a kernel, QEMU or root of the user's own choice is missing", false},
	{"the VMs are not ready in time, or panic", false},
	{"huge pages that the kernel cannot make now", false},
	{"a region or VFs that are not among the job's GRES, VFs that cannot be shared out evenly", false},
	{"a VF of the job's that somebody still has open, where there is no other", false},
	{"the user may not use /dev/kvm, or keeps VMs from booting: a memory limit, `kill`, `chmod`", false},
	faultParts,
	faultAccel,
	{"a VF of the job's that gres.conf has wrong, or that cannot be handed to its user", true},
	{"the host does not know the user, or `nearmetal` cannot be run", true},
}

var (
	faultParts = Fault{"the host has no QEMU or kernel that works, and root finds so too", true}
	faultAccel = Fault{"`accel=kvm` in plugstack.conf, and root has no KVM here", true}
)
