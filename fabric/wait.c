/*
 * Sleeping. Nobody interrupts us when something arrives from another VM, so the
 * sleep is in short naps; what this process does itself ends one at once.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ivshmem.h"

#define SPIN_ROUNDS	2000	/* looks before the first nap */
#define NAP_US		500

int ivs_wait_open(struct ivs_wait *w)
{
	struct epoll_event ev = { .events = EPOLLIN };

	w->timer = w->event = -1;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll >= 0)
		w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (w->timer >= 0)
		w->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->event < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->timer, &ev) ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->event, &ev)) {
		int ret = -errno;

		ivs_wait_close(w);
		return ret;
	}
	return 0;
}

void ivs_wait_close(struct ivs_wait *w)
{
	if (w->epoll < 0)
		return;
	close(w->epoll);
	if (w->timer >= 0)
		close(w->timer);
	if (w->event >= 0)
		close(w->event);
	w->epoll = -1;
}

void ivs_wait_signal(struct ivs_wait *w)
{
	uint64_t one = 1;

	if (w->epoll >= 0 && write(w->event, &one, sizeof(one)) != sizeof(one))
		return;	/* it is signaled as much as can be */
}

void ivs_wait_arm(struct ivs_wait *w)
{
	struct itimerspec soon = { .it_value = { 0, NAP_US * 1000 } };
	uint64_t count;

	if (w->epoll < 0)
		return;
	/* What was signaled has been looked at. */
	if (read(w->event, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	timerfd_settime(w->timer, 0, &soon, NULL);
}

uint64_t ivs_deadline(int timeout)
{
	return timeout < 0 ? UINT64_MAX : ivs_now_ms() + (uint64_t) timeout;
}

bool ivs_wait_nap(struct ivs_wait *w, uint64_t deadline, unsigned int *round)
{
	struct pollfd pfd = { .fd = w->epoll, .events = POLLIN };

	if (++*round < SPIN_ROUNDS) {
		/* The clock costs more than a look: not each time. */
		if (*round % 64)
			return true;
		sched_yield();
		return deadline == UINT64_MAX || ivs_now_ms() < deadline;
	}
	if (w->epoll >= 0) {
		ivs_wait_arm(w);
		poll(&pfd, 1, 1);
	} else {
		usleep(NAP_US);
	}
	return deadline == UINT64_MAX || ivs_now_ms() < deadline;
}
