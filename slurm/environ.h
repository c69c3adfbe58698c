/* Root's reader for the environment of a user's process in /proc, which may have any size and any content. */
#ifndef NM_ENVIRON_H_
#define NM_ENVIRON_H_

#include <stdbool.h>

/*
 * The maximum number of bytes that are read from an environment. The kernel limits execve(2) to 6 MiB, but a process
 * may declare any part of its memory as its environment (PR_SET_MM_MAP), even terabytes of zeros.
 */
#define NM_ENVIRON_MAX (8 << 20)

/* Whether fd, at the start of a /proc/PID/environ, contains the variable NAME=VALUE. */
bool nm_environ_has(int fd, const char *variable);

#endif /* NM_ENVIRON_H_ */
