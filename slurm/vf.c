#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "asroot.h"
#include "node.h"
#include "vf.h"

int nm_vf_lend(const struct nm_settings *s, const struct nm_job *job, const char *gres, char message[NM_MESSAGE_MAX])
{
	char name[256], node[256], uid[32], gid[32], has[NM_GRES_MAX + 16], out[NM_DEVICES_MAX];
	char *words[] = { "lend", name, node, uid, gid, has, NULL };

	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	snprintf(node, sizeof(node), "--node=%s", job->node);
	snprintf(uid, sizeof(uid), "--uid=%u", (unsigned int)job->uid);
	snprintf(gid, sizeof(gid), "--gid=%u", (unsigned int)job->gid);
	snprintf(has, sizeof(has), "--gres=%s", gres);
	if (nm_asroot(s, "slurm-vf", words, out, sizeof(out), message))
		return -1;
	if (nm_state_write_devices(s->state, job, out)) {
		snprintf(message, NM_MESSAGE_MAX, "the list of the job's VFs cannot be kept: %s", strerror(errno));
		return -1;
	}
	return 0;
}

int nm_vf_return(const struct nm_settings *s, const struct nm_job *job, char message[NM_MESSAGE_MAX])
{
	char name[256], out[1024];
	char *words[] = { "return", name, NULL };
	struct nm_values v;

	if (nm_request_read(job->request, &v, message) || v.origin[NM_VF] == NM_UNSET)
		return 0;
	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	return nm_asroot(s, "slurm-vf", words, out, sizeof(out), message);
}
