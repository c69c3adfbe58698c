// Package rank is the wrapper of a Slurm task: it replaces the task's command under slurmstepd, runs that command in
// a VM of the job, and behaves towards Slurm like the command: its streams, signals, terminal, exit status and PMI.
package rank
