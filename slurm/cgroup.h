/* The cgroups of a job, in which its VMs are. */
#ifndef NM_CGROUP_H_
#define NM_CGROUP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state.h"

#define NM_CGROUPS_MAX 16

/*
 * The cgroup.procs files of the cgroups that a job's VMs belong into, so that the job owns them, is
 * limited with them and pays for them: those of its extern step's own process, of which text is what
 * /proc/PID/cgroup says. signalled says that the VMs may be where Slurm signals the extern step: before
 * 24.05 that is together with the application, so that they go to the job's own cgroup there, of
 * the controller by which Slurm finds the processes (freezer). Returns their number.
 */
size_t nm_cgroup_files(const char *text, uint32_t job, bool signalled, char files[][512], size_t max);

/* Whether text, what /proc/PID/cgroup says of a slurmstepd of the job, has a cgroup of Slurm's. */
bool nm_cgroup_of_job(const char *text, uint32_t job);

/*
 * Remove the job's cgroups of the old hierarchies, and of the unified one, below root (/sys/fs/cgroup): Slurm has tried to before the
 * VMs in them ended. What runs in them of the job's user gets SIGKILL first. One with processes stays, for rmdir
 * refuses. Returns whether one of them did.
 */
bool nm_cgroup_remove(const char *root, const struct nm_job *job);

#endif /* NM_CGROUP_H_ */
