/*
 * The context of srun, sbatch and salloc: mistakes are reported where the command was typed; a valid request is
 * stored in the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "contexts.h"
#include "multiprog.h"
#include "options.h"
#include "request.h"
#include "settings.h"

extern char **environ;

/* The timeout of the check of a request, in seconds. */
#define CHECK_TIMEOUT 20

static const char *own_variable(const char *name, void *arg)
{
	(void) arg;
	return getenv(name);
}

static bool has_multiprog(void)
{
	char line[16384];
	ssize_t n;
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	n = read(fd, line, sizeof(line));
	close(fd);
	return n > 0 && nm_multiprog(line, (size_t) n);
}

/* Have nearmetal check the request and the cluster file, if it is installed here. */
static int check(const struct nm_settings *s, const char *request)
{
	char out[4096], accel[64];
	char *argv[] = { (char *) s->nearmetal, "slurm-boot", "--check", accel, "--", (char *) request, NULL };
	struct nm_child c = { .path = s->nearmetal, .argv = argv, .envp = environ, .timeout = CHECK_TIMEOUT };
	int status;

	if (access(s->nearmetal, X_OK))
		return 0; /* a submit host without nearmetal: the job's host will check */
	snprintf(accel, sizeof(accel), "--accel=%.40s", s->accel);
	status = nm_child_run(&c, out, sizeof(out));
	if (status == 0)
		return 0;
	if (status < 0) {
		slurm_error("nearmetal: cannot check the request: %s", strerror(errno));
		return -1;
	}
	for (char *rest = out, *line; (line = strsep(&rest, "\n"));)
		if (*line)
			slurm_error("%s", line);
	return -1;
}

static int draw_secret(char secret[NM_SECRET_LEN + 1])
{
	unsigned char bytes[NM_SECRET_LEN / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t) sizeof(bytes))
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(secret + 2 * i, "%02x", bytes[i]);
	return 0;
}

/*
 * Salloc and srun also put the prologs' variables into their own environment (_set_spank_env), after the last of the
 * plugin's contexts, so that their child processes would have the secret. This handler removes it before a fork;
 * slurmctld gets the secret in another way.
 */
static void forget_secret(void)
{
	unsetenv("SLURM_SPANK_" NM_SECRET_NAME);
}

/* Store the request of the options in the job. The options of a step within a job are not a request. */
static int submit(spank_t sp, const struct nm_settings *s)
{
	char request[NM_REQUEST_MAX], secret[NM_SECRET_LEN + 1];

	if (nm_options.origin[NM_FILE] != NM_UNSET && access(nm_options.text[NM_FILE], R_OK)) {
		slurm_error("nearmetal: cluster file %s: %s", nm_options.text[NM_FILE], strerror(errno));
		return -1;
	}
	if (nm_options.origin[NM_FILE] != NM_UNSET && nm_options.origin[NM_PAGES] == NM_FROM_SITE) {
		nm_options.origin[NM_PAGES] = NM_UNSET; /* the cluster file determines the pages of its VMs */
	} else if (nm_options.origin[NM_FILE] != NM_UNSET && nm_options.origin[NM_PAGES] != NM_UNSET &&
		   strcmp(nm_options.text[NM_PAGES], "ordinary") &&
		   (nm_options.origin[NM_VMS] == NM_UNSET || nm_options.origin[NM_MEMORY] == NM_UNSET)) {
		slurm_error("nearmetal: --vm-pages with a cluster file needs --vms-per-node and --vm-memory: root, who "
			    "keeps the pages "
			    "for the job, does not read the file");
		return -1;
	}
	if (nm_request_write(&nm_options, request)) {
		slurm_error("nearmetal: the options of the VMs are too long together: write a cluster file");
		return -1;
	}
	if (check(s, request))
		return -1;
	if (spank_context() == S_CTX_LOCAL && getenv("SLURM_JOB_ID"))
		return 0;
	if (draw_secret(secret)) {
		slurm_error("nearmetal: no random numbers: %s", strerror(errno));
		return -1;
	}
	errno = pthread_atfork(forget_secret, NULL, NULL);
	if (errno) {
		slurm_error("nearmetal: %s", strerror(errno));
		return -1;
	}
	if (spank_job_control_setenv(sp, NM_REQUEST_NAME, request, 1) != ESPANK_SUCCESS ||
	    spank_job_control_setenv(sp, NM_SECRET_NAME, secret, 1) != ESPANK_SUCCESS) {
		slurm_error("nearmetal: cannot put the request for VMs into the job");
		return -1;
	}
	return 0;
}

int nm_alloc_post_opt(spank_t sp, int ac, char **av)
{
	struct nm_settings s;
	const char *idle;

	if (nm_options_complete(own_variable, NULL, 0, ac, av)) {
		slurm_error("nearmetal: %s", nm_options_mistake);
		return -1;
	}
	if (!nm_values_wanted(&nm_options)) {
		idle = nm_options.origin[NM_VM] == NM_UNSET && !getenv("SLURM_JOB_ID") ? nm_options_idle() : NULL;
		if (!idle)
			return 0;
		slurm_error("nearmetal: --%s requires --vm", idle);
		return -1;
	}
	nm_settings_read(&s, ac, av);
	if (strcmp(s.backend, "qemu")) {
		slurm_error("nearmetal: plugstack.conf: vm_backend=%.60s: VMs of a job are QEMU processes of the job; "
			    "those of another "
			    "backend are not in its cgroup, which could not bound or end them: take it out, or write "
			    "vm_backend=qemu",
			    s.backend);
		return -1;
	}
	if (spank_context() == S_CTX_LOCAL && !spank_prepend_task_argv && has_multiprog()) {
		slurm_error("nearmetal: --multi-prog with --vm needs Slurm 23.11 or newer: start the programs by a "
			    "script that "
			    "reads SLURM_PROCID");
		return -1;
	}
	return submit(sp, &s);
}
