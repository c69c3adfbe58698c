/*
 * The extern step, as root, in addition to its one process: on each host, Slurm waits for this callback before any
 * other step of the job starts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot.h"
#include "contexts.h"
#include "node.h"
#include "settings.h"
#include "state.h"

int nm_extern_task_post_fork(spank_t sp, int ac, char **av)
{
	static char result[NM_RESULT_MAX];
	char message[NM_MESSAGE_MAX];
	struct nm_settings s;
	struct nm_values v;
	struct nm_job job;
	uint32_t id = 0;
	pid_t pid = -1;
	int rc;

	nm_settings_read(&s, ac, av);
	if (spank_get_item(sp, S_JOB_ID, &id) != ESPANK_SUCCESS)
		return 0;
	rc = nm_state_read(s.state, id, &job);
	if (rc < 0)
		slurm_error("nearmetal: request of job %u: %s", id, strerror(errno));
	/* Slurm 22.05 reports no task for the extern step; its task is the only child of this process. */
	if (rc > 0 && (spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS || pid <= 1))
		pid = nm_node_child();
	if (rc > 0 && pid > 1 && nm_state_write_extern(s.state, &job, pid, nm_node_started(pid)))
		slurm_error("nearmetal: extern step of job %u: %s", id, strerror(errno));
	if (rc <= 0 || nm_state_read_file(s.state, &job, NM_FILE_RESULT, result, NM_RESULT_MAX) > 0)
		return 0;
	if (nm_request_read(job.request, &v, message) || !strcmp(v.text[NM_KEEP], "step"))
		return 0;
	if (nm_state_run_here(s.state, &job))
		snprintf(result, sizeof(result), "failed host\nthe folder of the job's VMs cannot be mounted: %s\n",
			 strerror(errno));
	else
		nm_boot(sp, &s, &job, pid, result);
	if (nm_state_write_file(s.state, &job, NM_FILE_RESULT, result))
		slurm_error("nearmetal: result of job %u: %s", id, strerror(errno));
	if (!strncmp(result, "failed host\n", 12)) {
		char *reason = result + 12;

		reason[strcspn(reason, "\n")] = 0;
		nm_node_drain(&job, reason);
	}
	return 0;
}
