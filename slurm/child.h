/*
 * Running nearmetal: without a shell, with a timeout and bounded output, and as root only until the child has become
 * the user.
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
	char (*cgroups)[512]; /* cgroup.procs files to which the child first writes 0 */
	size_t ncgroups;
	const char *input;	  /* content of its standard input, at most PIPE_BUF bytes; NULL: empty */
	void (*place)(pid_t pid); /* called in the parent before the child executes the program; or NULL */
	unsigned int timeout;	  /* seconds */
};

/*
 * Run c and read its standard output and error into out[0..size), terminated with a zero byte. Returns its status in
 * the format of waitpid, or -1 with errno (ETIME: it was killed at the timeout).
 */
int nm_child_run(const struct nm_child *c, char *out, size_t size);

/* The message in nearmetal's output, without its "nearmetal: " prefix, because the caller adds a prefix of its own. */
const char *nm_child_said(const char *out);

#endif /* NM_CHILD_H_ */
