package rank

import (
	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
)

// vcpus returns the vCPUs that the task may run on, so that --cpu-bind has the same effect in the VM as natively;
// nil: all. Slurm has already bound this process (task/affinity, task/cgroup); cpus is the number of CPUs of the step
// on this node. If vCPUs are pinned, the result is those whose CPUs are in the process's set; otherwise a bound task
// gets its share of the VM's vCPUs.
func vcpus(r *state.Record, name string, t *task, cpus int) []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || r.Plan == nil {
		return nil
	}
	for i := range r.Plan.VMs {
		if v := &r.Plan.VMs[i]; v.Name == name {
			if pinned(v) {
				return boundVCPUs(v, set.IsSet)
			}
			if set.Count() >= cpus {
				return nil // not bound to fewer CPUs than the step has
			}
			return shareVCPUs(t, i, len(r.Plan.VMs), v.VCPUs)
		}
	}
	return nil
}

// pinned reports whether each vCPU of v has a CPU of its own.
func pinned(v *plan.VM) bool {
	for _, cpus := range v.Pins {
		if len(cpus) != 1 {
			return false
		}
	}
	return len(v.Pins) > 0
}

// boundVCPUs returns the vCPUs of v, which are pinned, for a task: those on CPUs for which bound returns true.
func boundVCPUs(v *plan.VM, bound func(cpu int) bool) []int {
	var list []int
	for vcpu, cpus := range v.Pins {
		if bound(cpus[0]) {
			list = append(list, vcpu)
		}
	}
	if len(list) > 0 && len(list) < v.VCPUs {
		return list
	}
	return nil
}

// shareVCPUs returns a task's share of n vCPUs that are not pinned, in VM number vm of vms. The vCPUs are divided
// among the VM's tasks in order; if there are more tasks than vCPUs, the tasks are assigned round-robin.
func shareVCPUs(t *task, vm, vms, n int) []int {
	tasks := t.tasks[t.node]
	index, all := 0, 0
	for local := 0; local < tasks; local++ {
		if vmOf(local, tasks, vms) != vm {
			continue
		}
		if local == t.local {
			index = all
		}
		all++
	}
	if all < 2 {
		return nil
	}
	if all > n {
		return []int{index % n}
	}
	var list []int
	for v := index * n / all; v < (index+1)*n/all; v++ {
		list = append(list, v)
	}
	return list
}
