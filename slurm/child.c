#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "child.h"

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void close_from(int fd)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, (unsigned int) fd, ~0U, 0))
		return;
#endif
	for (long last = sysconf(_SC_OPEN_MAX); fd < last; fd++)
		close(fd);
}

/* Runs in the child: only calls that are safe between fork and exec in a process with threads. */
static void become(const struct nm_child *c, int in, int out, const int placed[2])
{
	sigset_t none;
	char end;

	if (in < 0)
		in = open("/dev/null", O_RDONLY);

	if (c->place) {
		close(placed[1]);
		while (read(placed[0], &end, 1) < 0 && errno == EINTR)
			;
	}
	setsid();
	for (size_t i = 0; i < c->ncgroups; i++) {
		int fd = open(c->cgroups[i], O_WRONLY | O_CLOEXEC);

		if (fd >= 0) {
			/* If a controller refuses the process, it remains in the step's own cgroup. */
			if (write(fd, "0", 1) < 0)
				errno = 0;
			close(fd);
		}
	}
	if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	close_from(3);
	for (int s = 1; s < 65; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (c->drop) {
		if (setgroups(c->ngroups, c->groups) || setresgid(c->gid, c->gid, c->gid) ||
		    setresuid(c->uid, c->uid, c->uid))
			_exit(126);
		if (c->uid && (!setuid(0) || chdir("/")))
			_exit(126);
	}
	execve(c->path, c->argv, c->envp);
	_exit(127);
}

/* Create a pipe that contains text and has no writer. Returns its read end, or -1 with errno. */
static int pipe_of(const char *text)
{
	size_t n = strlen(text);
	int fds[2];
	bool ok;

	if (n > PIPE_BUF) {
		errno = EMSGSIZE;
		return -1;
	}
	if (pipe2(fds, O_CLOEXEC))
		return -1;
	ok = write(fds[1], text, n) == (ssize_t) n;
	close(fds[1]);
	if (ok)
		return fds[0];
	close(fds[0]);
	errno = EIO;
	return -1;
}

/* Read fd until end of file, or until the deadline. */
static int read_all(int fd, char *out, size_t size, long long deadline)
{
	char drop[4096];
	size_t n = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		long long left = deadline - now_ms();
		ssize_t got;
		int rc = left > 0 ? poll(&p, 1, (int) (left < 3600000 ? left : 3600000)) : 0;

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0) {
			errno = rc ? errno : ETIME;
			return -1;
		}
		if (n + 1 < size)
			got = read(fd, out + n, size - n - 1);
		else
			got = read(fd, drop, sizeof(drop));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return (int) got;
		if (n + 1 < size) {
			n += (size_t) got;
			out[n] = 0;
		}
	}
}

const char *nm_child_said(const char *out)
{
	static const char name[] = "nearmetal: ";

	return strncmp(out, name, sizeof(name) - 1) ? out : out + sizeof(name) - 1;
}

int nm_child_run(const struct nm_child *c, char *out, size_t size)
{
	long long deadline = now_ms() + c->timeout * 1000LL;
	int fds[2], placed[2], in = -1, status, rc;
	pid_t pid;

	out[0] = 0;
	if (c->input && (in = pipe_of(c->input)) < 0)
		return -1;
	if (pipe2(fds, O_CLOEXEC)) {
		if (in >= 0)
			close(in);
		return -1;
	}
	if (pipe2(placed, O_CLOEXEC)) {
		if (in >= 0)
			close(in);
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	pid = fork();
	if (!pid)
		become(c, in, fds[1], placed);
	if (in >= 0)
		close(in);
	if (pid > 0 && c->place)
		c->place(pid);
	close(placed[0]);
	close(placed[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return -1;
	}
	rc = read_all(fds[0], out, size, deadline);
	close(fds[0]);
	if (rc) {
		int e = errno;

		kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		errno = e;
		return -1;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}
