package node

import (
	"fmt"

	"nearmetal/internal/spec"
)

// mostOnCPU is the maximum number of vCPUs per CPU of the job. With more, the VMs do not boot within any time that a
// user waits, and the node takes long to end them after the job is cancelled.
const mostOnCPU = 8

// crowd compares the vCPUs of the cluster file on this node with the job's CPUs. It returns a warning if vCPUs have
// to share CPUs, "" if each has its own, and an error beyond mostOnCPU. VMs without a number of vCPUs share the job's
// CPUs.
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
		return fmt.Sprintf("the job has %d %s on %s for %d vCPUs: vCPUs share them, and ranks wait for each other", cpus, what, node, vcpus), nil
	}
	return "", nil
}
