#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lib.h"
#include "region/identity.h"
#include "region/siphash.h"

#define QUEUE	  4096 /* ranks that may connect between two heartbeats */
#define ASK_MS	  1000 /* timeout of a connection while the queue is full */
#define CLEAR_MAX (2 * QUEUE)

static socklen_t name(const uint8_t *key, uint32_t slot, uint32_t epoch, struct sockaddr_un *addr)
{
	uint32_t first[3] = { slot, epoch, 1 }, second[3] = { slot, epoch, 2 };
	int n;

	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	n = snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1, "nearmetal-door-%016llx%016llx",
		     (unsigned long long) ivs_siphash(key, first, sizeof(first)),
		     (unsigned long long) ivs_siphash(key, second, sizeof(second)));
	return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) n);
}

int ivs_identity_open(const uint8_t *key, uint32_t slot, uint32_t epoch)
{
	struct sockaddr_un addr;
	socklen_t len = name(key, slot, epoch, &addr);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !bind(fd, (struct sockaddr *) &addr, len) && !listen(fd, QUEUE))
		return fd;
	IVS_INFO(FI_LOG_DOMAIN, "no neighbour can read this rank's memory: %s\n", ivs_lib.strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

void ivs_identity_clear(int door)
{
	int i, fd;

	for (i = 0; i < CLEAR_MAX && (fd = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0; i++)
		close(fd);
}

pid_t ivs_identity_owner(const uint8_t *key, uint32_t slot, uint32_t epoch)
{
	struct timeval patience = { .tv_usec = ASK_MS % 1000 * 1000, .tv_sec = ASK_MS / 1000 };
	struct sockaddr_un addr;
	socklen_t len = name(key, slot, epoch, &addr), got;
	struct ucred owner = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), tries, ret = -1;

	if (fd < 0)
		return 0;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	for (tries = 0; tries < 10; tries++) {
		ret = connect(fd, (struct sockaddr *) &addr, len);
		if (!ret || errno != EINTR)
			break;
	}
	got = sizeof(owner);
	if (ret || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &got) || got != sizeof(owner) ||
	    owner.uid != geteuid())
		owner.pid = 0;
	close(fd);
	return owner.pid;
}
