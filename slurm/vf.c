#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "child.h"
#include "node.h"
#include "vf.h"

/* How long the kernel and its drivers may take, seconds: igb takes 19 for two VFs when emulated. */
#define TIMEOUT 120

/* Run slurm-vf with these words, NULL behind the last. Returns 0, or -1 and a message. */
static int run(const struct nm_settings *s, char *const *words, char *out, size_t size, char message[NM_MESSAGE_MAX])
{
	char root[1024], conf[1024];
	char *argv[12] = { (char *)s->nearmetal, "slurm-vf" };
	char *envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", conf, NULL };
	struct nm_child c = { .path = s->nearmetal, .argv = argv, .envp = envp, .timeout = TIMEOUT };
	const char *file = getenv("SLURM_CONF"), *said;
	size_t n = 2;
	int status;

	for (; *words && n < 10; words++)
		argv[n++] = *words;
	if (s->sysroot) {
		snprintf(root, sizeof(root), "--root=%.1000s", s->sysroot);
		argv[n++] = root;
	}
	snprintf(conf, sizeof(conf), "SLURM_CONF=%.1000s", file ? file : "");
	status = nm_child_run(&c, out, size);
	if (status == 0)
		return 0;
	said = *out ? nm_child_said(out) : "nearmetal slurm-vf was killed";
	if (status < 0)
		snprintf(message, NM_MESSAGE_MAX, "%.200s: %s", s->nearmetal, strerror(errno));
	else
		snprintf(message, NM_MESSAGE_MAX, "%.*s", (int)(strcspn(said, "\n") % NM_MESSAGE_MAX), said);
	return -1;
}

int nm_vf_lend(const struct nm_settings *s, const struct nm_job *job, const char *gres, char message[NM_MESSAGE_MAX])
{
	char name[256], node[256], uid[32], gid[32], has[NM_GRES_MAX + 16], out[NM_DEVICES_MAX];
	char *words[] = { "lend", name, node, uid, gid, has, NULL };

	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	snprintf(node, sizeof(node), "--node=%s", job->node);
	snprintf(uid, sizeof(uid), "--uid=%u", (unsigned int)job->uid);
	snprintf(gid, sizeof(gid), "--gid=%u", (unsigned int)job->gid);
	snprintf(has, sizeof(has), "--gres=%s", gres);
	if (run(s, words, out, sizeof(out), message))
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
	return run(s, words, out, sizeof(out), message);
}

void nm_vf_sweep(const struct nm_settings *s)
{
	char journals[1024], state[1024], out[1024], message[NM_MESSAGE_MAX];
	char *words[] = { "return", state, NULL };

	snprintf(journals, sizeof(journals), "%.1000s/var/lib/nearmetal", s->sysroot ? s->sysroot : "");
	if (access(journals, F_OK))
		return;
	snprintf(state, sizeof(state), "--state=%.1000s", s->state);
	if (run(s, words, out, sizeof(out), message))
		slurm_error("nearmetal: VFs of jobs that have ended: %s", message);
}
