/*
 * Sleeping. Before it sleeps, a rank shows that its senders have to wake it, and polls once more. A sender checks for
 * that after it has sent something, without a fence. Therefore the first wait timeout is short, and the poll after it
 * finds messages that were missed. A rank that another VM or a core provider cannot wake sleeps in proportion to the
 * time that it has waited.
 */
#include <time.h>

#include "base/param.h"
#include "object/domain.h"
#include "proto/proto.h"
#include "proto/sleep.h"
#include "remote/core.h"
#include "ring/doorbell.h"
#include "tune.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000000000U + (uint64_t) ts.tv_nsec;
}

/* Shows that the domain's endpoints sleep. Returns false if some event could not wake them. */
static bool show(struct ivs_domain *d)
{
	struct ivs_list *pos;
	bool all = true;

	ivs_list_each(pos, &d->eps) {
		struct ivs_ep *ep = ivs_entry(pos, struct ivs_ep, domain_link);

		if (!ep->enabled)
			continue;
		/* Room in a ring is not announced by a doorbell. */
		if (!ivs_list_empty(&ep->active))
			all = false;
		if (ep->me) {
			if (ivs_doorbell_open(&ep->home))
				ivs_doorbell_drain(&ep->home);
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

		ivs_ep_poll_all(ep);
		if (d->core && ep->enabled && !ivs_core_sleep(ep))
			all = false;
		/* A peer's death may have been noticed here: end what waits for it now. */
		ivs_ep_serve(ep);
	}
	d->sleepers--;
	if (!quiet(arg, &mark))
		return 0;
	now = now_ns();
	if (!w->since || mark != w->mark) {
		/* Something has arrived since: this is a new wait. */
		w->mark = mark;
		w->since = now;
		w->timeout = 0;
	}
	if (all) {
		w->timeout = w->timeout ? ivs_param.wait_timeout * 1000000U : IVS_WAIT_FIRST;
	} else {
		w->timeout = (now - w->since) / IVS_WAIT_SHORT_PART;
		if (w->timeout < IVS_WAIT_SHORT_FIRST)
			w->timeout = IVS_WAIT_SHORT_FIRST;
		if (w->timeout > IVS_WAIT_SHORT_MOST)
			w->timeout = IVS_WAIT_SHORT_MOST;
	}
	return w->timeout;
}

bool ivs_wait_sleep(struct ivs_domain *d, struct ivs_wait *w, ivs_quiet_fn *quiet, void *arg, uint64_t deadline)
{
	bool left = true;
	uint64_t ns;

	ivs_lock(d);
	ns = ivs_wait_arm(d, w, quiet, arg);
	/* Another thread that handles messages may stop: this one still has to be woken. */
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
