#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "asroot.h"
#include "child.h"
#include "node.h"
#include "state.h"
#include "sweep.h"

static void run(const struct nm_settings *s, const char *node, uint32_t except)
{
	char state[1024], name[160], job[32], out[4096], message[NM_MESSAGE_MAX];
	char *words[] = { state, name, job, NULL };

	snprintf(state, sizeof(state), "--state=%.1000s", s->state);
	snprintf(name, sizeof(name), "--node=%.128s", node);
	snprintf(job, sizeof(job), "--except=%u", except);
	if (nm_asroot(s, "slurm-sweep", words, out, sizeof(out), message))
		slurm_error("nearmetal: what jobs have left: %s", message);
	else if (*out)
		slurm_info("%s", nm_child_said(out));
}

/* Whether the job of a directory has its extern step here, with a slurmstepd that will end it. */
static bool attended(const struct nm_settings *s, uint32_t id, const char *node)
{
	struct nm_job job = { .id = id };
	unsigned long long start;
	pid_t pid;

	snprintf(job.node, sizeof(job.node), "%s", node);
	return nm_state_read_extern(s->state, &job, &pid, &start) && nm_node_started(pid) == start &&
	       nm_node_of_slurmstepd(pid);
}

void nm_sweep_before(const struct nm_settings *s, const char *node, uint32_t job)
{
	DIR *d = opendir(s->state);
	bool found = false;
	struct dirent *e;

	if (!d)
		return;
	while (!found && (e = readdir(d))) {
		bool left = !strncmp(e->d_name, NM_LEFT, sizeof(NM_LEFT) - 1);
		char *dot;
		unsigned long id = strtoul(e->d_name + (left ? sizeof(NM_LEFT) - 1 : 0), &dot, 10);

		found = id && id != job && *dot == '.' && !strcmp(dot + 1, node) &&
			(left || !attended(s, (uint32_t) id, node));
	}
	closedir(d);
	if (found)
		run(s, node, job);
}

void nm_sweep_all(const struct nm_settings *s)
{
	if (nm_asroot_journals(s) || !access(s->state, F_OK))
		run(s, "", 0);
}
