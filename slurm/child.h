/*
 * Running nearmetal: no shell, a bounded time, bounded output, and as root never for
 * longer than it takes to become the user.
 */
#ifndef NM_CHILD_H_
#define NM_CHILD_H_

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct nm_child {
	const char *path;
	char *const *argv;
	char *const *envp;
	bool drop; /* become uid, gid and groups */
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t ngroups;
	char (*cgroups)[512]; /* cgroup.procs files to write 0 to before */
	size_t ncgroups;
	const char *input;	  /* what it finds on its standard input, PIPE_BUF bytes at the most; NULL: nothing */
	void (*place)(pid_t pid); /* called here before the child runs anything; or NULL */
	unsigned int timeout;	  /* seconds */
};

/*
 * Run c and read what it writes to its standard output and error into out[0..size), with a
 * zero byte behind. Returns its status as of waitpid, or -1 with errno (ETIME: it
 * took too long and was killed).
 */
int nm_child_run(const struct nm_child *c, char *out, size_t size);

/* What nearmetal said, without its own name before it: it is said behind another. */
const char *nm_child_said(const char *out);

#endif /* NM_CHILD_H_ */
