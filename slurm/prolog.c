/*
 * Before a job, on each of its hosts, as root: checks the request that srun put into the job, and stores it for the
 * extern step, which starts the VMs. It does nothing on the user's behalf and follows no path from the user. A failed
 * prolog drains its host; because a bad request is not the host's fault, it becomes a result that fails the job.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "contexts.h"
#include "node.h"
#include "pages.h"
#include "request.h"
#include "settings.h"
#include "state.h"
#include "sweep.h"
#include "vf.h"

/* Read a number from the environment. Returns 0, or -1. */
static int variable(const char *name, unsigned long *out)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	*out = strtoul(text, &end, 10);
	return *end || errno || *out > UINT32_MAX ? -1 : 0;
}

/* Store the working directory, if it fits the format. */
static void working_dir(struct nm_job *job)
{
	const char *dir = getenv("SLURM_JOB_WORK_DIR");

	if (dir && dir[0] == '/' && strlen(dir) < sizeof(job->dir) && !strchr(dir, '\n'))
		strcpy(job->dir, dir);
}

/*
 * Store what joins the job's nodes. Without it, each node's VMs are separate, which is reported when a step needs
 * them joined.
 */
static void join(const struct nm_settings *s, const struct nm_job *job)
{
	static char text[NM_HOSTS_MAX];
	const char *secret = getenv("SPANK_" NM_SECRET_NAME), *nodes = getenv("SLURM_JOB_NODELIST");
	char message[NM_MESSAGE_MAX];

	if (!nodes)
		nodes = getenv("SLURM_NODELIST");
	if (!secret || strlen(secret) != NM_SECRET_LEN || strspn(secret, "0123456789abcdef") != NM_SECRET_LEN || !nodes)
		return;
	memcpy(text, secret, NM_SECRET_LEN);
	text[NM_SECRET_LEN] = ' ';
	if (nm_node_hosts(nodes, text + NM_SECRET_LEN + 1, sizeof(text) - NM_SECRET_LEN - 1, message))
		slurm_error("nearmetal: prolog: job %u: %s", job->id, message);
	else if (text[NM_SECRET_LEN + 1] && nm_state_write_file(s->state, job, NM_FILE_HOSTS, text))
		slurm_error("nearmetal: prolog: the nodes of job %u: %s", job->id, strerror(errno));
}

int nm_prolog(spank_t sp, int ac, char **av)
{
	const char *text = getenv("SPANK_" NM_REQUEST_NAME);
	char gres[NM_GRES_MAX] = "", message[NM_MESSAGE_MAX], result[NM_RESULT_MAX], region[NM_REGION_MAX];
	struct nm_settings s;
	struct nm_values v;
	struct nm_job job = { 0 };
	unsigned long id, uid, gid;
	bool ok;
	int rc;

	(void) sp;
	nm_settings_read(&s, ac, av);
	if (!variable("SLURM_JOB_ID", &id) && !nm_state_node(job.node))
		nm_sweep_before(&s, job.node, (uint32_t) id);
	if (!text)
		return 0;
	if (variable("SLURM_JOB_ID", &id) || variable("SLURM_JOB_UID", &uid) || nm_state_node(job.node)) {
		slurm_error("nearmetal: prolog: SPANK provided no job ID, user ID or node name");
		return -1;
	}
	job.id = (uint32_t) id;
	job.uid = (uid_t) uid;
	job.gid = variable("SLURM_JOB_GID", &gid) ? (gid_t) -1 : (gid_t) gid;
	working_dir(&job);
	if (job.gid == (gid_t) -1 && nm_node_group(job.uid, &job.gid)) {
		slurm_error("nearmetal: prolog: user %u has no group", (unsigned int) job.uid);
		return -1;
	}
	ok = !nm_request_read(text, &v, message);
	if (ok) {
		strcpy(job.request, text); /* its length is bounded, and it has the canonical form */
		if (v.origin[NM_VF] != NM_UNSET || s.region_gres)
			ok = !nm_node_gres(&job, gres, message);
	}
	nm_node_end_job(&s, &job); /* processes of an earlier job with this number, after a loss of Slurm's state */
	if (nm_state_create(s.state, &job)) {
		slurm_error("nearmetal: prolog: %s: %s", s.state, strerror(errno));
		return -1;
	}
	if (!ok) {
		snprintf(result, sizeof(result), "failed user\n%s\n", message);
		return nm_state_write_file(s.state, &job, NM_FILE_RESULT, result);
	}
	/*
	 * The boot compares this limit with the region's size, which may also come from a cluster file or from a
	 * step.
	 */
	if (s.region_gres) {
		snprintf(region, sizeof(region), "%.64s:%llu", s.region_gres,
			 (unsigned long long) nm_node_gres_count(gres, s.region_gres));
		if (nm_state_write_file(s.state, &job, NM_FILE_REGION, region))
			return -1;
	}
	join(&s, &job);
	rc = v.origin[NM_VF] != NM_UNSET ? nm_vf_lease(&s, &job, gres, message) : 0;
	if (rc) {
		snprintf(result, sizeof(result), "failed %s\n%s\n", rc == NM_VF_HELD ? "user" : "host", message);
		if (rc != NM_VF_HELD)
			nm_node_drain(&job, message);
		return nm_state_write_file(s.state, &job, NM_FILE_RESULT, result);
	}
	/* Fragmented memory is not a fault of the host, which other jobs may still use. */
	if (nm_pages_wanted(&v) && nm_pages_keep(&s, &job, message)) {
		snprintf(result, sizeof(result), "failed user\n%s\n", message);
		return nm_state_write_file(s.state, &job, NM_FILE_RESULT, result);
	}
	return 0;
}
