/*
 * After a job, on each of its hosts, as root, regardless of the job's end: removes everything of its VMs. Safe to run
 * twice, and for jobs without VMs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "asroot.h"
#include "contexts.h"
#include "node.h"
#include "settings.h"
#include "state.h"
#include "sweep.h"

int nm_slurmd_init(int ac, char **av)
{
	struct nm_settings s;

	nm_settings_read(&s, ac, av);
	nm_sweep_all(&s);
	return 0;
}

int nm_epilog(spank_t sp, int ac, char **av)
{
	char message[NM_MESSAGE_MAX];
	const char *id = getenv("SLURM_JOB_ID"), *uid = getenv("SLURM_JOB_UID");
	struct nm_settings s;
	struct nm_job job;
	int rc;

	(void) sp;
	nm_settings_read(&s, ac, av);
	rc = id ? nm_state_read(s.state, (uint32_t) strtoul(id, NULL, 10), &job) : 0;
	if (!rc)
		return 0;
	if (rc < 0) {
		slurm_error("nearmetal: epilog: request of job %s: %s", id, strerror(errno));
		/* Slurm provides the job's user; without this host's node name nothing was leased. */
		if (!uid || !*job.node)
			return 0;
		job.uid = (uid_t) strtoul(uid, NULL, 10);
	}
	if (nm_node_end_job(&s, &job) && nm_state_write_left(s.state, &job))
		slurm_error("nearmetal: epilog: a cgroup of job %u stays: %s", job.id, strerror(errno));
	if (nm_asroot_return(&s, "slurm-vf", &job, message))
		slurm_error("nearmetal: epilog: VFs of job %u: %s", job.id, message);
	if (nm_asroot_return(&s, "slurm-pages", &job, message))
		slurm_error("nearmetal: epilog: huge pages of job %u: %s", job.id, message);
	/* The next sweep removes what remains, because a failed epilog would drain the host. */
	if (nm_state_remove(s.state, job.id, job.node))
		slurm_error("nearmetal: epilog: cannot remove what is kept of job %u: %s", job.id, strerror(errno));
	return 0;
}
