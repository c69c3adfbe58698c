#include "group.h"
#include "buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *root;
static unsigned long made;

struct left { /* a cgroup whose processes outlived their exec */
	unsigned long cgroup;
	struct left *next;
};
static struct left *leftovers;

void group_use_cgroups(const char *dir)
{
	root = dir;
}

static void path_of(unsigned long cgroup, const char *file, char *b, size_t n)
{
	snprintf(b, n, "%s/x%lu%s", root, cgroup, file);
}

pid_t group_fork(struct group *g)
{
	struct clone_args a = { .exit_signal = SIGCHLD };
	char path[128];
	int dir = -1;
	long pid = -1;

	g->cgroup = 0;
	if (root) {
		path_of(++made, "", path, sizeof(path));
		if (!mkdir(path, 0755)) {
			g->cgroup = made;
			dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		}
	}
	if (dir >= 0) {
		/* The process is created in its cgroup, because moving it there later waits for an RCU grace period. */
		a.flags = CLONE_INTO_CGROUP;
		a.cgroup = dir;
		pid = syscall(SYS_clone3, &a, sizeof(a));
	}
	if (pid < 0) {
		if (g->cgroup) {
			rmdir(path);
			g->cgroup = 0;
		}
		pid = fork();
	}
	if (pid && dir >= 0)
		close(dir);
	g->pid = pid;
	return pid;
}

struct process {
	pid_t pid, ppid, session;
	bool in;
};

/* Returns the existing processes, from /proc; the caller frees the list. */
static struct process *processes(size_t *n)
{
	DIR *d = opendir("/proc");
	struct process *all = NULL;
	struct dirent *e;
	size_t cap = 0;

	*n = 0;
	while (d && (e = readdir(d))) {
		char path[64], b[512], *p;
		struct process x = { 0 };
		ssize_t got;
		int fd;

		x.pid = atoi(e->d_name);
		if (x.pid <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/stat", (int) x.pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		got = read(fd, b, sizeof(b) - 1);
		close(fd);
		if (got <= 0)
			continue;
		b[got] = 0;
		p = strrchr(b, ')'); /* the name may contain any character */
		if (!p || sscanf(p + 1, " %*c %d %*d %d", &x.ppid, &x.session) != 2)
			continue;
		if (*n == cap) {
			cap = cap ? 2 * cap : 256;
			all = realloc(all, cap * sizeof(*all));
			if (!all)
				abort();
		}
		all[(*n)++] = x;
	}
	if (d)
		closedir(d);
	return all;
}

/* Signals the session and all descendants; returns how many there were. */
static int signal_tree(pid_t leader, int sig)
{
	size_t n;
	struct process *all = processes(&n);
	bool more = true;
	int hit = 0;

	while (more) {
		more = false;
		for (size_t i = 0; i < n; i++) {
			if (all[i].in)
				continue;
			all[i].in = all[i].pid == leader || all[i].session == leader;
			for (size_t k = 0; k < n && !all[i].in; k++)
				all[i].in = all[k].in && all[k].pid == all[i].ppid;
			more = more || all[i].in;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (all[i].in && all[i].pid != getpid() && !kill(all[i].pid, sig))
			hit++;
	free(all);
	return hit;
}

static int signal_cgroup(unsigned long cgroup, int sig)
{
	char path[128], b[4096];
	size_t len = 0;
	ssize_t n;
	int hit = 0, fd;

	path_of(cgroup, "/cgroup.procs", path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while ((n = read(fd, b + len, sizeof(b) - 1 - len)) > 0) {
		char *p = b, *end;

		len += n;
		b[len] = 0;
		while ((end = strchr(p, '\n'))) {
			pid_t pid = atoi(p);

			if (pid > 1 && !kill(pid, sig))
				hit++;
			p = end + 1;
		}
		len -= p - b;
		memmove(b, p, len);
	}
	close(fd);
	return hit;
}

void group_signal(const struct group *g, int sig)
{
	if (g->cgroup)
		signal_cgroup(g->cgroup, sig);
	else
		signal_tree(g->pid, sig);
}

void group_kill(const struct group *g)
{
	if (g->cgroup) {
		char path[128];
		int fd;

		path_of(g->cgroup, "/cgroup.kill", path, sizeof(path));
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0) {
			bool done = write(fd, "1", 1) == 1;

			close(fd);
			if (done)
				return;
		}
		/* Before Linux 5.14: until no process is left, or only those that cannot be killed. */
		for (int i = 0; i < 100 && signal_cgroup(g->cgroup, SIGKILL); i++)
			;
		return;
	}
	/* They are stopped first, because one could fork while another is read. */
	signal_tree(g->pid, SIGSTOP);
	signal_tree(g->pid, SIGKILL);
}

static bool remove_cgroup(unsigned long cgroup)
{
	char path[128];

	path_of(cgroup, "", path, sizeof(path));
	return !rmdir(path) || errno != EBUSY;
}

void group_drop(const struct group *g)
{
	struct left **p = &leftovers;

	while (*p) {
		struct left *l = *p;

		if (remove_cgroup(l->cgroup)) {
			*p = l->next;
			free(l);
		} else {
			p = &l->next;
		}
	}
	if (g->cgroup && !remove_cgroup(g->cgroup)) {
		struct left *l = must_alloc(sizeof(*l));

		l->cgroup = g->cgroup;
		l->next = leftovers;
		leftovers = l;
	}
}
