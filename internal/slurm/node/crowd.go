package node

import (
	"fmt"

	"nearmetal/internal/spec"
)

// mostOnCPU is how many vCPUs a CPU of the job takes at most. With more the VMs do not boot in any
// time a user waits for, and the node is busy ending them long after the job is cancelled.
const mostOnCPU = 8

// crowd compares the vCPUs that the cluster file asks for on this node with the job's CPUs: a
// warning where they take turns, "" where each has a CPU, an error beyond mostOnCPU. VMs
// without a number of vCPUs get what the job has.
func crowd(c *spec.Cluster, node string, cpus int) (warning string, err error) {
	vcpus := 0
	for _, g := range c.VMs {
		vcpus += max(g.Count, 1) * g.VCPUs
	}
	what := "CPUs"
	if cpus == 1 {
		what = "CPU"
	}
	if vcpus > mostOnCPU*cpus {
		return "", fmt.Errorf("%d vCPUs on the job's %d %s of %s do not boot in good time: ask for more CPUs (srun -c) or fewer vCPUs (--vm-vcpus, --vms-per-node), at most %d to a CPU",
			vcpus, cpus, what, node, mostOnCPU)
	}
	if vcpus > cpus {
		return fmt.Sprintf("the job has %d %s on %s for %d vCPUs: they take turns, and MPI programs wait for each other", cpus, what, node, vcpus), nil
	}
	return "", nil
}
