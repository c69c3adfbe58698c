/*
 * Sleeping. Before it sleeps, a rank shows that its senders have to wake it, and looks
 * once more. A sender looks for that after it has sent something, without a fence: the
 * first nap is short, and what was missed is found after it. Whoever cannot be woken, by
 * another VM or by an inner provider, naps in proportion to how long it has waited.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "bell.h"
#include "inner.h"

#define SPIN_ROUNDS	2000	/* looks before the first nap */
#define NAP_FIRST	50000	/* ns: far longer than a store takes to be seen */
#define SHORT_FIRST	20000	/* ns, for who cannot be woken */
#define SHORT_MOST	2000000
#define SHORT_PART	8	/* of the time waited so far */

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
		/* What wakes any of the domain's: bells, and the inner provider's. */
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

void ivs_wait_signal(struct ivs_wait *w)
{
	uint64_t one = 1;

	if (w->epoll >= 0 && write(w->event, &one, sizeof(one)) != sizeof(one))
		return;	/* it is signaled as much as can be */
}

void ivs_wait_clear(struct ivs_wait *w)
{
	uint64_t count;

	if (w->epoll >= 0 && read(w->event, &count, sizeof(count)) < 0)
		return;	/* nothing was signaled */
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000000000U + (uint64_t) ts.tv_nsec;
}

/* Shows that the domain's endpoints sleep. Gives false if somebody could not wake them. */
static bool show(struct ivs_domain *d)
{
	struct ivs_list *pos;
	bool all = true;

	ivs_list_each(pos, &d->eps) {
		struct ivs_ep *ep = ivs_entry(pos, struct ivs_ep, domain_link);

		if (!ep->enabled)
			continue;
		/* For room in a ring nobody calls. */
		if (!ivs_list_empty(&ep->active))
			all = false;
		if (ep->me) {
			if (ivs_bell_open(ep))
				ivs_bell_drain(ep);
			else
				all = false;
			if (__atomic_load_n(&ep->me->unwoken, __ATOMIC_RELAXED))
				all = false;
			__atomic_store_n(&ep->me->asleep, 1, __ATOMIC_RELAXED);
		}
		ivs_ep_cool(ep);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return all;
}

uint64_t ivs_wait_arm(struct ivs_domain *d, struct ivs_wait *w, ivs_quiet_fn *quiet, void *arg)
{
	uint64_t now, mark;
	struct ivs_list *pos;
	bool all;

	ivs_wait_clear(w);
	w->armed = true;
	d->sleepers++;
	all = show(d);
	ivs_list_each(pos, &d->eps) {
		struct ivs_ep *ep = ivs_entry(pos, struct ivs_ep, domain_link);

		ivs_ep_look(ep);
		if (d->inner && ep->enabled && !ivs_inner_sleep(ep))
			all = false;
	}
	d->sleepers--;
	if (!quiet(arg, &mark))
		return 0;
	now = now_ns();
	if (!w->since || mark != w->mark) {
		/* Something has come meanwhile: this is another wait. */
		w->mark = mark;
		w->since = now;
		w->nap = 0;
	}
	if (all) {
		w->nap = w->nap ? ivs_param.nap * 1000000U : NAP_FIRST;
	} else {
		w->nap = (now - w->since) / SHORT_PART;
		if (w->nap < SHORT_FIRST)
			w->nap = SHORT_FIRST;
		if (w->nap > SHORT_MOST)
			w->nap = SHORT_MOST;
	}
	return w->nap;
}

void ivs_wait_timer(struct ivs_wait *w, uint64_t ns)
{
	struct itimerspec soon = {
		.it_value = { (time_t) (ns / 1000000000U), (long) (ns % 1000000000U) }
	};

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
	if (*round >= SPIN_ROUNDS)
		return false;
	/* The clock costs more than a look: not each time. */
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

bool ivs_wait_sleep(struct ivs_domain *d, struct ivs_wait *w, ivs_quiet_fn *quiet, void *arg,
		    uint64_t deadline)
{
	bool left = true;
	uint64_t ns;

	ivs_lock(d);
	ns = ivs_wait_arm(d, w, quiet, arg);
	/* Who handles messages meanwhile does not do it for good: we are still to be woken. */
	d->sleepers++;
	ivs_unlock(d);
	if (ns)
		left = ivs_wait_block(w, ns, deadline);
	ivs_lock(d);
	d->sleepers--;
	w->armed = false;
	ivs_unlock(d);
	return left;
}
