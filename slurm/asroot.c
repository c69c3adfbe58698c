#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "asroot.h"
#include "child.h"

/* The timeout for the kernel and its drivers, in seconds: igb needs 19 s for two VFs when emulated. */
#define TIMEOUT 120

#define WORDS_MAX 12

/*
 * The search path for programs: the usual directories, then that of the running program, PREFIX/sbin/slurmd, and
 * PREFIX/bin, which have Slurm's programs.
 */
static void search_path(char *out, size_t size)
{
	char exe[1024];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;

	exe[n > 0 ? n : 0] = 0;
	slash = strrchr(exe, '/');
	if (slash)
		*slash = 0;
	snprintf(out, size, "PATH=/usr/sbin:/usr/bin:/sbin:/bin%s%s%s", slash ? ":" : "", slash ? exe : "",
		 slash ? "/../bin" : "");
}

bool nm_asroot_journals(const struct nm_settings *s)
{
	char dir[1024];

	snprintf(dir, sizeof(dir), "%.1000s/var/lib/nearmetal", s->sysroot ? s->sysroot : "");
	return !access(dir, F_OK) || errno != ENOENT;
}

int nm_asroot(const struct nm_settings *s, const char *command, char *const *words, char *out, size_t size,
	      char message[NM_MESSAGE_MAX])
{
	char root[1024], conf[1024], path[1200];
	char *argv[WORDS_MAX + 4] = { (char *) s->nearmetal, (char *) command };
	char *envp[] = { path, "LANG=C.UTF-8", conf, NULL };
	struct nm_child c = { .path = s->nearmetal, .argv = argv, .envp = envp, .timeout = TIMEOUT };
	const char *file = getenv("SLURM_CONF"), *said;
	size_t n = 2, line;
	int status;

	/* The words of the command first, then its flags, then its arguments. */
	argv[n++] = *words++;
	if (s->sysroot) {
		snprintf(root, sizeof(root), "--root=%.1000s", s->sysroot);
		argv[n++] = root;
	}
	for (; *words && n < WORDS_MAX + 3; words++)
		argv[n++] = *words;
	search_path(path, sizeof(path));
	snprintf(conf, sizeof(conf), "SLURM_CONF=%.1000s", file ? file : "");
	status = nm_child_run(&c, out, size);
	if (status == 0)
		return 0;
	if (status < 0) {
		snprintf(message, NM_MESSAGE_MAX, "%.200s: %s", s->nearmetal, strerror(errno));
		return -1;
	}
	said = nm_child_said(out);
	line = strcspn(said, "\n");
	if (line)
		snprintf(message, NM_MESSAGE_MAX, "%.*s", (int) (line < NM_MESSAGE_MAX ? line : NM_MESSAGE_MAX - 1),
			 said);
	else
		snprintf(message, NM_MESSAGE_MAX, "nearmetal %s was killed", command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int nm_asroot_return(const struct nm_settings *s, const char *command, const struct nm_job *job,
		     char message[NM_MESSAGE_MAX])
{
	char name[256], state[1024], out[1024];
	char *words[] = { "return", name, state, NULL };

	if (!nm_asroot_journals(s))
		return 0;
	snprintf(name, sizeof(name), "--job=%u.%s", job->id, job->node);
	snprintf(state, sizeof(state), "--state=%.1000s", s->state);
	return nm_asroot(s, command, words, out, sizeof(out), message);
}
