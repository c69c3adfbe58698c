// Package node is what happens on one node of a Slurm job for its VMs: the request that
// the SPANK plugin hands over becomes a cluster, on the cores and in the memory that Slurm
// allocated to the job there.
package node
