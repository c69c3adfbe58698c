/*
 * The host's virtiofsd holds a descriptor for each inode that this VM knows, including those that are only cached. At
 * its limit all further files fail (ENFILE). The VM's kernel drops nothing while it has free memory, so the agent
 * drops its caches before the limit is reached.
 */
#include "inodes.h"
#include "log.h"
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct inodes known;
static struct timer timer;
static struct event dropped; /* end of file: the caches are dropped */

/* Returns the number of virtiofs inodes that the kernel has in *n; false if the kernel does not report it. */
static bool count(uint64_t *n)
{
	unsigned long long active = 0;
	char line[512];
	FILE *f = fopen("/proc/slabinfo", "re");
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "fuse_inode %llu", &active) == 1;
	fclose(f);
	*n = active;
	return found;
}

/*
 * Drops the caches in a process of its own, because it may last a second, and the channel must not wait. Returns
 * false if the process could not be started.
 */
static bool drop(void)
{
	int ends[2], fd;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC)) {
		say("pipe: %s", strerror(errno));
		return false;
	}
	pid = fork();
	if (!pid) {
		fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
		/* 2 drops names and inodes with their pages. Pages of files in use stay (3 would also drop them). */
		_exit(fd < 0 || write(fd, "2", 1) != 1);
	}
	close(ends[1]);
	if (pid < 0) {
		say("fork: %s", strerror(errno));
		close(ends[0]);
		return false;
	}
	event_init(&dropped, ends[0], dropped.ready);
	event_watch(&dropped, EPOLLIN);
	return true;
}

static void check(struct timer *t)
{
	uint64_t n, wait;

	if (!count(&n)) {
		say("/proc/slabinfo does not say how many files this VM knows: a program that opens %llu may fail",
		    (unsigned long long) known.limit);
		return;
	}
	wait = inodes_count(&known, n);
	if (wait)
		timer_set(t, wait);
	else if (!drop())
		timer_set(t, INODES_LEAST);
}

static void drop_ended(struct event *e, uint32_t events)
{
	uint64_t n;

	(void) events;
	event_close(e);
	if (count(&n))
		timer_set(&timer, inodes_dropped(&known, n));
}

void inodes_bound(uint64_t max)
{
	inodes_init(&known, max);
	timer.fire = check;
	dropped.ready = drop_ended;
	if (max)
		check(&timer);
}
