// Package examples contains the files of a Slurm configuration that are the same on every site. `nearmetal slurm
// example` prints them, together with those that it generates for a host.
package examples

import _ "embed"

// JobSubmit is nearmetal's part of job_submit.lua: it adds the GRES that a job's options request.
//
//go:embed job_submit.lua
var JobSubmit string

// Cgroup is a cgroup.conf that limits a job's VMs to the resources of the job.
//
//go:embed cgroup.conf
var Cgroup string

// MPI is an mpi.conf that makes PMIx fences wait for all nodes.
//
//go:embed mpi.conf
var MPI string
