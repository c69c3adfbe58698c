/*
 * The host's virtiofsd holds a descriptor for each inode that this VM knows, those that are only
 * cached, too. At its limit all further files fail (ENFILE). The kernel here has memory left and
 * drops nothing by itself, so the agent has it drop its caches before.
 */
#include "inodes.h"
#include "log.h"
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PER_SECOND = 50000 }; /* inodes: more than a VM can open */

static const uint64_t second = 1000000000;

static uint64_t bound, limit; /* drop at bound; 0: stopped */
static bool dropped;	      /* the last time */
static struct timer timer;

/* The number of virtiofs inodes that the kernel has; false: it does not say. */
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

/* In a process of its own: it may take a second, and the channel must not wait. */
static void drop(void)
{
	int fd;
	pid_t pid = fork();

	if (pid < 0)
		say("fork: %s", strerror(errno));
	if (pid)
		return;
	fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	/* 3: an inode with cached pages is not dropped without them. */
	_exit(fd < 0 || write(fd, "3", 1) != 1);
}

static void look(struct timer *t)
{
	uint64_t n, wait;

	if (!count(&n)) {
		say("/proc/slabinfo does not say how many files this VM knows: a program that opens %llu may fail",
		    (unsigned long long) limit);
		return;
	}
	if (dropped) {
		/* What is left is in use. Do not drop again before there is much more. */
		bound = n + limit / 8 > limit / 2 ? n + limit / 8 : limit / 2;
		dropped = false;
	}
	if (n >= bound) {
		drop();
		dropped = true;
		wait = second;
	} else {
		wait = (bound - n) * second / PER_SECOND;
		if (wait < second / 10)
			wait = second / 10;
		if (wait > 10 * second)
			wait = 10 * second;
	}
	timer_set(t, wait);
}

void inodes_bound(uint64_t max)
{
	limit = max;
	bound = max / 2;
	timer.fire = look;
	if (max)
		look(&timer);
}
