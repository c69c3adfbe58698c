#include <stdio.h>
#include <string.h>

#include "asroot.h"
#include "node.h"
#include "pages.h"

bool nm_pages_wanted(const struct nm_values *v)
{
	return v->origin[NM_PAGES] != NM_UNSET && strcmp(v->text[NM_PAGES], "ordinary");
}

int nm_pages_keep(const struct nm_settings *s, const struct nm_job *job, char message[NM_MESSAGE_MAX])
{
	char name[256], state[1024], accel[64], request[NM_REQUEST_MAX], out[1024];
	char *words[] = { "keep", name, state, accel, "--", request, NULL };

	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	snprintf(state, sizeof(state), "--state=%.1000s", s->state);
	snprintf(accel, sizeof(accel), "--accel=%.40s", s->accel);
	strcpy(request, job->request);
	return nm_asroot(s, "slurm-pages", words, out, sizeof(out), message);
}
