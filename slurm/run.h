/*
 * The folder of a job's clusters, JOB.NODE/run: a file system of its own, in memory, with a bound on bytes
 * and files. The job's user may do in it as he likes: the host's /run is not filled, and the folder goes
 * at once, whatever is in it, however deep, and whoever still writes to it.
 */
#ifndef NM_RUN_H_
#define NM_RUN_H_

#include <sys/types.h>

/* What a job's folder may hold: VMs' logs are 1 MiB each at the most. */
#define NM_RUN_BYTES "64m"
#define NM_RUN_FILES "8k"

/* Make the folder below the job's own, and mount it. Returns 0, or -1 with errno. */
int nm_run_make(int job, uid_t uid, gid_t gid);

/*
 * Mount it where this process does not see it mounted: a site may give each job a mount namespace
 * (job_container/tmpfs), made before the prolog. Returns 0, or -1 with errno.
 */
int nm_run_here(int job, uid_t uid, gid_t gid);

/* Take it off and remove it. Returns 0 also where nothing is, else -1 with errno. */
int nm_run_remove(int job);

#endif /* NM_RUN_H_ */
