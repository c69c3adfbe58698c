/* All processes that one exec has started, to be signalled and killed together. */
#ifndef NM_GROUP_H
#define NM_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

struct group {
	pid_t pid;	      /* the first process, leader of its session */
	unsigned long cgroup; /* its number, 0: none; then sessions are searched in /proc */
};

/* Sets the directory of a cgroup v2 hierarchy to use; without it no cgroups are used. */
void group_use_cgroups(const char *dir);
/* Forks a process that leads a new group; otherwise like fork. */
pid_t group_fork(struct group *g);
/* Signals every process of the group. */
void group_signal(const struct group *g, int sig);
/* Kills every process of the group, including those that it forks during the call. */
void group_kill(const struct group *g);
/* Releases the group; its remaining processes are not affected. */
void group_drop(const struct group *g);

#endif
