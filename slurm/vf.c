#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

#include "asroot.h"
#include "node.h"
#include "vf.h"

/* Exit status of nearmetal slurm-vf lease if a process still has a VF open (cmd/nearmetal/slurmvf.go). */
#define EXIT_HELD 4

int nm_vf_lease(const struct nm_settings *s, const struct nm_job *job, const char *gres, char message[NM_MESSAGE_MAX])
{
	char name[256], state[1024], node[256], uid[32], gid[32], has[NM_GRES_MAX + 16], out[NM_DEVICES_MAX],
		list[NM_DEVICES_MAX] = "";
	char *words[] = { "lease", name, state, node, uid, gid, has, NULL };
	int rc;

	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	snprintf(state, sizeof(state), "--state=%.1000s", s->state);
	snprintf(node, sizeof(node), "--node=%s", job->node);
	snprintf(uid, sizeof(uid), "--uid=%u", (unsigned int) job->uid);
	snprintf(gid, sizeof(gid), "--gid=%u", (unsigned int) job->gid);
	snprintf(has, sizeof(has), "--gres=%s", gres);
	rc = nm_asroot(s, "slurm-vf", words, out, sizeof(out), message);
	if (rc)
		return rc == EXIT_HELD ? NM_VF_HELD : -1;
	/* Each line ends with a newline; one without was truncated. */
	for (char *rest = out, *line; (line = strsep(&rest, "\n")) && rest;) {
		size_t used = strlen(list);

		if (!strncmp(line, "# ", 2))
			slurm_error("nearmetal: prolog: %s", line + 2);
		else if (*line)
			snprintf(list + used, sizeof(list) - used, "%s\n", line);
	}
	if (nm_state_write_file(s->state, job, NM_FILE_DEVICES, list)) {
		snprintf(message, NM_MESSAGE_MAX, "the list of the job's VFs cannot be kept: %s", strerror(errno));
		return -1;
	}
	return 0;
}
