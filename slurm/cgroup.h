/* The cgroups of a job that contain its VMs. */
#ifndef NM_CGROUP_H_
#define NM_CGROUP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state.h"

#define NM_CGROUPS_MAX 16

/*
 * Find the cgroup.procs files of the cgroups for a job's VMs, so that the VMs belong to the job and count towards its
 * limits and accounting: those of its extern step's own process. text is the content of that process's
 * /proc/PID/cgroup. signalled: Slurm may signal the VMs together with the extern step. Otherwise (before 24.05, where
 * it signals the extern step together with the application) the VMs use the job's own cgroup in the hierarchy of the
 * controller by which Slurm finds processes (freezer). Returns the number of files.
 */
size_t nm_cgroup_files(const char *text, uint32_t job, bool signalled, char files[][512], size_t max);

/* Whether text, the content of /proc/PID/cgroup of a slurmstepd of the job, names a cgroup that Slurm made. */
bool nm_cgroup_of_job(const char *text, uint32_t job);

/*
 * Remove the job's cgroups, of the old hierarchies and of the unified one, below root (/sys/fs/cgroup). Slurm has
 * tried to remove them before the VMs in them ended. Processes of the job's user in them are first killed with
 * SIGKILL. A cgroup with other processes remains, because rmdir fails. Returns whether any remains.
 */
bool nm_cgroup_remove(const char *root, const struct nm_job *job);

#endif /* NM_CGROUP_H_ */
