// Package rank is the wrapper of a Slurm task: it stands in the task's place under
// slurmstepd, runs the task's command in a VM of the job, and is to Slurm what the command would
// be: its streams, signals, terminal and end, and its PMI.
package rank
