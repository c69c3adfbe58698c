/*
 * The directory of a job's clusters, JOB.NODE/run: a tmpfs of its own, with limits on bytes and files. Whatever the
 * job's user writes to it, the host's /run is not filled, and the directory is removed at once, regardless of its
 * contents and depth, and of processes that still write to it.
 */
#ifndef NM_RUN_H_
#define NM_RUN_H_

#include <sys/types.h>

/* The limits of a job's directory: VMs' logs are at most 1 MiB each. */
#define NM_RUN_BYTES "64m"
#define NM_RUN_FILES "8k"

/* Create the directory below the job's own, and mount it. Returns 0, or -1 with errno. */
int nm_run_make(int job, uid_t uid, gid_t gid);

/*
 * Mount it if this process does not see it mounted: a site may create a mount namespace for each job before the
 * prolog (job_container/tmpfs). Returns 0, or -1 with errno.
 */
int nm_run_here(int job, uid_t uid, gid_t gid);

/* Unmount and remove it. Returns 0, also if it does not exist, or -1 with errno. */
int nm_run_remove(int job);

#endif /* NM_RUN_H_ */
