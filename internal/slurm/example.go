package slurm

import (
	"fmt"
	"strings"

	"nearmetal/internal/topology"
	"nearmetal/slurm/examples"
)

// File is one file of a configuration.
type File struct {
	Name string // without a directory: slurm.conf
	Text string
}

// Example returns a set of files that work unchanged on a single host, which is both controller and node. gres is the
// host's offer; hostname is its name.
func Example(host *topology.Host, gres *Gres, hostname string) []File {
	return []File{
		{"slurm.conf", slurmConf(host, gres, hostname)},
		{"gres.conf", strings.Join(gres.Lines(), "\n") + "\n"},
		{"cgroup.conf", examples.Cgroup},
		{"mpi.conf", examples.MPI},
		{"plugstack.conf", "required " + Plugin + " region_gres=" + GresRegion + "\n"},
		{"job_submit.lua", examples.JobSubmit},
	}
}

func slurmConf(host *topology.Host, gres *Gres, hostname string) string {
	packages, cores, cpus := host.Counts()
	var memory uint64
	for _, n := range host.Nodes {
		if n.GPU != "" {
			continue // slurmd counts it, but jobs and VMs must not use it
		}
		memory += n.MemoryBytes
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Slurm on one host, with nearmetal. Further nodes: nearmetal slurm example, there,
# and its NodeName line here.
ClusterName=nearmetal
SlurmctldHost=%s
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ReturnToService=2

# VMs boot in the job's extern step, and its other steps wait for them.
PrologFlags=Alloc,Contain,DeferBatch

# Cores, memory, VFs and regions are given to one job each.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=%s
JobSubmitPlugins=lua
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
JobAcctGatherType=jobacct_gather/cgroup

# A VM with a VF locks its memory.
PropagateResourceLimitsExcept=MEMLOCK

# Open MPI; MPICH and Intel MPI want --mpi=pmi2.
MpiDefault=pmix

`, hostname, gres.Types())
	fmt.Fprintf(&b, "NodeName=%s CPUs=%d", gres.Node, cpus)
	// Slurm requires that all sockets are equal; if they are not, only the number of CPUs is set.
	if packages > 0 && cores%packages == 0 && cores > 0 && cpus%cores == 0 {
		fmt.Fprintf(&b, " Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d", packages, cores/packages, cpus/cores)
	}
	fmt.Fprintf(&b, " RealMemory=%d Gres=%s\n", memory>>20, gres.Value())
	fmt.Fprintf(&b, "PartitionName=all Nodes=%s Default=YES\n", gres.Node)
	return b.String()
}
