/* Ways to sleep and to end a sleep. proto/sleep.c decides when and for how long. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/param.h"
#include "object/domain.h"
#include "object/wait.h"
#include "region/region.h"
#include "tune.h"

int ivs_wait_open(struct ivs_domain *d, struct ivs_wait *w)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ret;

	w->timer = w->event = -1;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0)
		return -errno;
	w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (w->timer >= 0)
		w->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->event < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->timer, &ev) ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->event, &ev))
		goto failed;
	if (d) {
		/* Everything that wakes any wait of the domain: doorbells, and the core provider's descriptor. */
		pthread_mutex_lock(&d->lock);
		if (d->wake < 0)
			d->wake = epoll_create1(EPOLL_CLOEXEC);
		pthread_mutex_unlock(&d->lock);
		if (d->wake < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, d->wake, &ev))
			goto failed;
	}
	return 0;
failed:
	ret = -errno;
	ivs_wait_close(w);
	return ret;
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

int ivs_wait_control(const struct ivs_wait *w, enum fi_wait_obj obj, int command, void *arg)
{
	switch (command) {
	case FI_GETWAIT:
		if (w->epoll < 0)
			return -FI_ENODATA;
		*(int *) arg = w->epoll;
		return 0;
	case FI_GETWAITOBJ: *(enum fi_wait_obj *) arg = obj; return 0;
	default: return -FI_ENOSYS;
	}
}

void ivs_wait_signal(struct ivs_wait *w)
{
	uint64_t one = 1;

	if (w->epoll >= 0 && write(w->event, &one, sizeof(one)) != sizeof(one))
		return; /* the event is already signaled */
}

void ivs_wait_clear(struct ivs_wait *w)
{
	uint64_t count;

	if (w->epoll >= 0 && read(w->event, &count, sizeof(count)) < 0)
		return; /* nothing was signaled */
}

void ivs_wait_timer(struct ivs_wait *w, uint64_t ns)
{
	struct itimerspec soon = { .it_value = { (time_t) (ns / 1000000000U), (long) (ns % 1000000000U) } };

	if (w->epoll >= 0)
		timerfd_settime(w->timer, 0, &soon, NULL);
}

uint64_t ivs_deadline(int timeout)
{
	return timeout < 0 ? UINT64_MAX : ivs_now_ms() + (uint64_t) timeout;
}

bool ivs_wait_spin(uint64_t deadline, unsigned int *round, bool *over)
{
	*over = false;
	if (*round >= (ivs_param.overcommit ? IVS_YIELD_CROWDED : IVS_WAIT_ROUNDS))
		return false;
	/* Reading the clock costs more than a poll: do it only every 64th time. */
	if (++*round % 64)
		return true;
	sched_yield();
	*over = deadline != UINT64_MAX && ivs_now_ms() >= deadline;
	return true;
}

bool ivs_wait_block(struct ivs_wait *w, uint64_t ns, uint64_t deadline)
{
	struct pollfd pfd = { .fd = w->epoll, .events = POLLIN };
	uint64_t now = ivs_now_ms();
	struct timespec ts;

	if (deadline != UINT64_MAX) {
		if (now >= deadline)
			return false;
		if (ns > (deadline - now) * 1000000U)
			ns = (deadline - now) * 1000000U;
	}
	ts.tv_sec = (time_t) (ns / 1000000000U);
	ts.tv_nsec = (long) (ns % 1000000000U);
	if (w->epoll >= 0)
		ppoll(&pfd, 1, ns == UINT64_MAX ? NULL : &ts, NULL);
	else
		nanosleep(&ts, NULL);
	return true;
}
