// Package node boots the VMs of a Slurm job on one of its nodes: it makes a cluster of the SPANK plugin's request, on
// the cores and in the memory that Slurm has allocated to the job on that node.
package node
