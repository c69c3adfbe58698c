/*
 * The doorbell wakes sleeping ranks of this VM. Each sleeping rank has a socket, and a rank that sends it something
 * rings there. The socket's name follows from the region's key: the region does not state whom to wake, only that a
 * rank sleeps, and a wrong word costs a system call. Other VMs cannot ring. They set a flag in the sleeper's slot, and
 * its wait timeouts are short.
 */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lib.h"
#include "region/siphash.h"
#include "ring/doorbell.h"
#include "tune.h"

/* Computes the socket's name, in the abstract name space: not a file, and visible only in this network name space. */
static socklen_t name(const struct ivs_region *r, uint32_t slot, uint32_t epoch, struct sockaddr_un *addr)
{
	static const char what[] = "wake";
	uint32_t data[3] = { slot, epoch };
	int n;

	memcpy(&data[2], what, sizeof(data[2]));
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	n = snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1, "nearmetal-%016llx",
		     (unsigned long long) ivs_siphash(r->header.key, data, sizeof(data)));
	return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) n);
}

bool ivs_doorbell_open(struct ivs_home *h)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct sockaddr_un addr;
	socklen_t len;

	if (h->doorbell >= 0)
		return true;
	if (h->doorbell == IVS_NO_DOORBELL || !h->region)
		return false;
	len = name(h->region, h->slot, h->epoch, &addr);
	h->doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->doorbell >= 0 && !bind(h->doorbell, (struct sockaddr *) &addr, len) &&
	    (*h->wake < 0 || !epoll_ctl(*h->wake, EPOLL_CTL_ADD, h->doorbell, &ev)))
		return true;
	IVS_INFO(FI_LOG_EP_CTRL, "nobody can wake this rank: %s\n", ivs_lib.strerror(errno));
	if (h->doorbell >= 0)
		close(h->doorbell);
	h->doorbell = IVS_NO_DOORBELL;
	return false;
}

void ivs_doorbell_close(struct ivs_home *h)
{
	if (h->doorbell < 0)
		return;
	/* Explicitly: a child of fork may also hold the socket, and closing it here would leave it in the epoll set. */
	if (*h->wake >= 0)
		epoll_ctl(*h->wake, EPOLL_CTL_DEL, h->doorbell, NULL);
	close(h->doorbell);
	h->doorbell = IVS_NO_DOORBELL;
}

/* Bytes read from a doorbell at once. A socket holds some 10; a rank that rings forever is not followed. */
#define DRAIN_MAX 16

void ivs_doorbell_drain(struct ivs_home *h)
{
	char byte;
	int i;

	for (i = 0; i < DRAIN_MAX && recv(h->doorbell, &byte, 1, 0) >= 0; i++)
		;
}

/*
 * Rings a peer's doorbell. Returns false if that is impossible; a full queue counts as success, because the peer was
 * rung often enough.
 */
static bool rung(struct ivs_ring *r)
{
	struct ivs_home *h = r->home;
	struct sockaddr_un addr;
	socklen_t len;

	if (!ivs_doorbell_open(h))
		return false;
	len = name(h->region, r->slot, r->epoch, &addr);
	return sendto(h->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *) &addr, len) == 1 ||
	       errno == EAGAIN || errno == ENOBUFS;
}

void __attribute__((noinline)) ivs_doorbell_ring(struct ivs_ring *r)
{
	struct nm_slot *s = &r->home->region->slots[r->slot];

	/* One sender is enough to wake the rank. */
	if (!__atomic_exchange_n(&s->asleep, 0, __ATOMIC_ACQ_REL))
		return;
	if (r->deaf || !rung(r)) {
		r->deaf = true;
		__atomic_store_n(&s->unwoken, 1, __ATOMIC_RELAXED);
	}
}
