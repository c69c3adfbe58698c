/* All processes that one exec has started, to be signalled and killed together. */
#ifndef NM_GROUP_H
#define NM_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

struct group {
	pid_t pid;	      /* the first process, leader of its session */
	unsigned long cgroup; /* its number, 0: none; then sessions are searched in /proc */
};

/* Names the directory of a cgroup v2 hierarchy to use; without it there are no cgroups. */
void group_use_cgroups(const char *dir);
/* Forks a process that leads a new group; like fork otherwise. */
pid_t group_fork(struct group *g);
/* Signals every process of the group. */
void group_signal(const struct group *g, int sig);
/* Kills every process of the group, those that it forks meanwhile too. */
void group_kill(const struct group *g);
/* Drops the group; processes that it still has stay. */
void group_drop(const struct group *g);

#endif
