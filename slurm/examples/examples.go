// Package examples holds the files of a Slurm configuration that are the same on every site.
// `nearmetal slurm example` prints them, beside those that it makes for a host.
package examples

import _ "embed"

// JobSubmit is nearmetal's part of job_submit.lua: it adds the GRES that a job's options ask for.
//
//go:embed job_submit.lua
var JobSubmit string

// Cgroup is a cgroup.conf that keeps a job's VMs to what the job was given.
//
//go:embed cgroup.conf
var Cgroup string

// MPI is an mpi.conf with which fences of PMIx wait for all nodes.
//
//go:embed mpi.conf
var MPI string
