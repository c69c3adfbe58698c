package rank

import (
	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster"
	"nearmetal/internal/plan"
)

// vcpus are the vCPUs that the task may run on, so that --cpu-bind means in the VM what it
// means outside: nil for all. Slurm has bound this process already (task/affinity,
// task/cgroup). Of vCPUs that are pinned those count whose CPUs are in its set; else the
// task's n-th share of the node's CPUs is its share of the VM's vCPUs.
func vcpus(r *cluster.Record, name string, t *task) []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || r.Plan == nil {
		return nil
	}
	for i := range r.Plan.VMs {
		if v := &r.Plan.VMs[i]; v.Name == name {
			return boundVCPUs(v, set.IsSet, set.Count())
		}
	}
	return nil
}

// boundVCPUs gives the vCPUs of v for a task that is bound to count CPUs, those for which bound holds.
func boundVCPUs(v *plan.VM, bound func(cpu int) bool, count int) []int {
	var list []int
	for vcpu, cpus := range v.Pins {
		if len(cpus) == 1 && bound(cpus[0]) {
			list = append(list, vcpu)
		}
	}
	if len(list) > 0 && len(list) < v.VCPUs {
		return list
	}
	return nil
}
