/* What a user's process has in its environment, as root reads it of /proc: it may be of any size, and lie. */
#ifndef NM_ENVIRON_H_
#define NM_ENVIRON_H_

#include <stdbool.h>

/*
 * The most bytes that are read of an environment. The kernel lets execve(2) take 6 MiB at the most; but a process may
 * name any of its memory as its environment (PR_SET_MM_MAP), terabytes of zeros too.
 */
#define NM_ENVIRON_MAX (8 << 20)

/* Whether one of the variables in fd, which is at the start of a /proc/PID/environ, is NAME=VALUE. */
bool nm_environ_has(int fd, const char *variable);

#endif /* NM_ENVIRON_H_ */
