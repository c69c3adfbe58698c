/*
 * Preloaded, it forces the order in which a launcher and the child that it forks for a remote shell continue. The
 * parent waits until the child has closed FORKED_CLOSES descriptors, or has executed another program. A child that
 * has closed that many waits until the parent has called setpgid.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int reached[2], went_on[2]; /* messages of the child and of the parent */
static pid_t child;		   /* in the parent, until it has called setpgid */
static long closes = -1;	   /* remaining ones, in the child */

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static int (*real_close(void))(int)
{
	return (int (*)(int)) next("close");
}

pid_t fork(void)
{
	pid_t (*real)(void) = (pid_t (*)(void)) next("fork");
	char c;
	pid_t pid;

	if (pipe2(reached, O_CLOEXEC) || pipe2(went_on, O_CLOEXEC))
		abort();
	pid = real();
	if (!pid) {
		real_close()(reached[0]);
		real_close()(went_on[1]);
		closes = atol(getenv("FORKED_CLOSES"));
		return 0;
	}
	real_close()(reached[1]);
	real_close()(went_on[0]);
	while (read(reached[0], &c, 1) < 0)
		; /* interrupted by a signal, for example the child's */
	real_close()(reached[0]);
	child = pid;
	return pid;
}

int close(int fd)
{
	char c;

	if (closes > 0 && !--closes) {
		if (write(reached[1], "", 1) != 1)
			_exit(126);
		while (read(went_on[0], &c, 1) < 0)
			;
	}
	if (closes >= 0 && (fd == reached[1] || fd == went_on[0]))
		return 0; /* its exec closes them */
	return real_close()(fd);
}

int setpgid(pid_t pid, pid_t group)
{
	int (*real)(pid_t, pid_t) = (int (*)(pid_t, pid_t)) next("setpgid");
	int ret = real(pid, group);

	if (child && pid == child) {
		child = 0;
		real_close()(went_on[1]);
	}
	return ret;
}
