/*
 * The doorbell wakes ranks of this VM that sleep. A sleeping rank has a socket of its own. A rank that
 * sends it something meanwhile rings there. The socket's name follows from the
 * region's key: nothing in the region says whom to wake, only that somebody sleeps, and a
 * wrong word costs a system call. Other VMs cannot ring. They set a flag in the sleeper's slot, and its wait
 * timeouts are short.
 */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "region/siphash.h"
#include "ring/doorbell.h"
#include "tune.h"

/* In the abstract name space: no file, and of this network name space only. */
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

bool ivs_doorbell_open(struct ivs_ep *ep)
{
	struct ivs_domain *d = ep->domain;
	struct epoll_event ev = { .events = EPOLLIN };
	struct sockaddr_un addr;
	socklen_t len;

	if (ep->doorbell >= 0)
		return true;
	if (ep->doorbell == IVS_NO_DOORBELL || !ep->me)
		return false;
	len = name(d->region, ep->slot, ep->epoch, &addr);
	ep->doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ep->doorbell >= 0 && !bind(ep->doorbell, (struct sockaddr *) &addr, len) &&
	    (d->wake < 0 || !epoll_ctl(d->wake, EPOLL_CTL_ADD, ep->doorbell, &ev)))
		return true;
	IVS_INFO(FI_LOG_EP_CTRL, "nobody can wake this rank: %s\n", ivs_lib.strerror(errno));
	if (ep->doorbell >= 0)
		close(ep->doorbell);
	ep->doorbell = IVS_NO_DOORBELL;
	return false;
}

void ivs_doorbell_close(struct ivs_ep *ep)
{
	if (ep->doorbell < 0)
		return;
	/* By name: a child of fork may hold the socket, too. */
	if (ep->domain->wake >= 0)
		epoll_ctl(ep->domain->wake, EPOLL_CTL_DEL, ep->doorbell, NULL);
	close(ep->doorbell);
	ep->doorbell = IVS_NO_DOORBELL;
}

/* Bytes taken off a doorbell at once. A socket holds some 10; who rings on and on is not followed. */
#define DRAIN_MAX 16

void ivs_doorbell_drain(struct ivs_ep *ep)
{
	char byte;
	int i;

	for (i = 0; i < DRAIN_MAX && recv(ep->doorbell, &byte, 1, 0) >= 0; i++)
		;
}

/* A full queue has been rung often enough. */
static bool rung(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	struct sockaddr_un addr;
	socklen_t len;

	if (!ivs_doorbell_open(ep))
		return false;
	len = name(ep->domain->region, p->slot, p->epoch, &addr);
	return sendto(ep->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *) &addr, len) == 1 ||
	       errno == EAGAIN || errno == ENOBUFS;
}

void __attribute__((noinline)) ivs_doorbell_ring(struct ivs_peer *p)
{
	struct nm_slot *s = &p->ep->domain->region->slots[p->slot];

	/* One of its senders is enough. */
	if (!__atomic_exchange_n(&s->asleep, 0, __ATOMIC_ACQ_REL))
		return;
	if (p->deaf || !rung(p)) {
		p->deaf = true;
		__atomic_store_n(&s->unwoken, 1, __ATOMIC_RELAXED);
	}
}
