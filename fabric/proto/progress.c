/* Progress: polls the rings and handles the messages that have arrived. */
#include "proto/proto.h"
#include "remote/core.h"
#include "ring/ring.h"
#include "tune.h"

/* Stops polling hot ring i in each call: its sender sets the activity byte from now on. */
static void cool(struct ivs_ep *ep, int i)
{
	struct ivs_peer *p = ep->hot[i];

	p->hot = false;
	__atomic_store_n(&p->ring.rx_ctl->polled, 0, __ATOMIC_RELAXED);
	/* Checked once more, in case its sender has just seen that it was polled. */
	__atomic_store_n(&ep->me->activity[p->slot % 64], 1, __ATOMIC_RELAXED);
	ep->hot[i] = ep->hot[--ep->hot_count];
}

/* Adds p's ring to those that are polled in each call. */
static void heat(struct ivs_ep *ep, struct ivs_peer *p)
{
	int i, oldest = 0;

	if (p->hot || !p->ring.rx_ring)
		return;
	if (unlikely(ep->domain->sleepers)) {
		/* Its sender must keep setting the activity byte; more messages may have arrived already. */
		__atomic_store_n(&ep->me->activity[p->slot % 64], 1, __ATOMIC_RELAXED);
		return;
	}
	if (ep->hot_count == IVS_HOT_MAX) {
		for (i = 1; i < IVS_HOT_MAX; i++)
			if (ep->ticks - ep->hot[i]->ring.used > ep->ticks - ep->hot[oldest]->ring.used)
				oldest = i;
		cool(ep, oldest);
	}
	ep->hot[ep->hot_count++] = p;
	p->hot = true;
	ivs_ring_use(&p->ring, ep->ticks);
	__atomic_store_n(&p->ring.rx_ctl->polled, 1, __ATOMIC_RELAXED);
}

/* Stops polling rings in each call that have become idle. The last one stays. */
static void __attribute__((noinline)) cool_idle(struct ivs_ep *ep)
{
	int i;

	for (i = ep->hot_count - 1; i >= 0 && ep->hot_count > 1; i--)
		if (ep->ticks - ep->hot[i]->ring.used > IVS_IDLE_TICKS)
			cool(ep, i);
}

struct ivs_peer *ivs_peer_attach(struct ivs_ep *ep, uint32_t slot)
{
	struct ivs_ring_found found;
	struct ivs_peer *p;

	if (likely(!ivs_ring_find(&ep->home, slot, &found)))
		return NULL;
	/* More newcomers than can exist at once: the others are attached later. */
	if (ep->newcomers > 2 * ep->domain->region->geo.slots)
		return NULL;
	p = ivs_peer_by_slot(ep, slot, found.epoch);
	if (!p || p->broken || p->channel == IVS_CHAN_DEAD)
		return NULL;
	ivs_ring_attach(&p->ring, &found);
	return p;
}

static void poll_slot(struct ivs_ep *ep, uint32_t slot)
{
	struct ivs_peer *p = ep->by_slot[slot];

	if (!p || !p->ring.rx_ring || p->channel == IVS_CHAN_DEAD)
		p = ivs_peer_attach(ep, slot);
	if (p && p->ring.rx_ring && !p->hot && p->channel != IVS_CHAN_DEAD &&
	    (ivs_ring_poll(ep, p) || ivs_ring_pending(&p->ring)) && p->channel != IVS_CHAN_DEAD)
		heat(ep, p);
}

/* Polls the peers that have set their activity byte: their rings are not polled in each call. */
static void __attribute__((noinline)) activity(struct ivs_ep *ep)
{
	uint32_t group, slot, slots = ep->domain->region->geo.slots;

	for (group = 0; group < 64; group++) {
		if (!__atomic_load_n(&ep->me->activity[group], __ATOMIC_RELAXED))
			continue;
		__atomic_store_n(&ep->me->activity[group], 0, __ATOMIC_RELAXED);
		/* Before the rings are read: a later message sets the byte again. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		for (slot = group; slot < slots; slot += 64) {
			struct ivs_peer *p = ep->by_slot[slot];

			/* The ring may be that of the slot's next owner. */
			if (!p || !p->ring.rx_ring || !p->hot)
				poll_slot(ep, slot);
		}
	}
}

/*
 * Polls one slot in rotation, for a new peer or one whose activity byte was missed. The memory that the next slots need
 * is prefetched, so that this call does not wait for it.
 */
static void __attribute__((noinline)) turn(struct ivs_ep *ep)
{
	uint32_t mask = ep->domain->region->geo.slots - 1;
	struct ivs_peer *p = ep->by_slot[(ep->turn + 2) & mask];

	if (p) {
		__builtin_prefetch(p);
		__builtin_prefetch((char *) p + 64);
	}
	p = ep->by_slot[(ep->turn + 1) & mask];
	if (p)
		ivs_ring_prefetch(&p->ring);
	poll_slot(ep, ep->turn);
	ep->turn = (ep->turn + 1) & mask;
}

void ivs_ep_serve(struct ivs_ep *ep)
{
	struct ivs_list *pos, *tmp;

	ivs_list_each_safe(pos, tmp, &ep->active) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, active);

		if (unlikely(p->condemned))
			ivs_peer_reap(p);
		else
			ivs_peer_pump(p);
	}
}

void ivs_ep_progress(struct ivs_ep *ep)
{
	int i, n, came = 0;

	if (unlikely(!ep->enabled))
		return;
	ep->ticks++;
	for (i = 0; i < ep->hot_count; i++) {
		struct ivs_peer *p = ep->hot[i];

		if (ivs_ring_quiet(&p->ring))
			continue;
		n = ivs_ring_poll(ep, p);
		if (n) {
			came += n;
			ivs_ring_use(&p->ring, ep->ticks);
			ivs_pace(&p->ring, n);
		}
	}
	/* Messages have arrived: the other slots are polled in a later call. */
	if (came && ep->ticks % IVS_TURN_TICKS && ivs_list_empty(&ep->active))
		return;
	if (likely(ep->me != NULL)) {
		if (unlikely(ivs_any_activity(ep->me)))
			activity(ep);
		if (unlikely(!(ep->ticks % IVS_TURN_TICKS))) {
			turn(ep);
			if (unlikely(!(ep->ticks % IVS_CHECK_TICKS))) {
				cool_idle(ep);
				ivs_peer_check(ep);
			}
		}
	}
	if (unlikely(ep->domain->core != NULL))
		ivs_core_poll(ep);
	if (unlikely(!ivs_list_empty(&ep->active)))
		ivs_ep_serve(ep);
}

void ivs_ep_cool(struct ivs_ep *ep)
{
	while (ep->hot_count)
		cool(ep, ep->hot_count - 1);
}

void ivs_ep_poll_all(struct ivs_ep *ep)
{
	struct ivs_list *pos;

	ivs_ep_progress(ep);
	if (!ep->enabled || !ep->me)
		return;
	/* Activity bytes may be missing of senders that have just seen their ring polled. */
	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		if (p->ring.rx_ring && p->channel != IVS_CHAN_DEAD && ep->by_slot[p->slot] == p)
			poll_slot(ep, p->slot);
	}
	ivs_peer_check(ep);
}

void ivs_domain_progress(struct ivs_domain *domain)
{
	struct ivs_list *pos;

	ivs_list_each(pos, &domain->eps)
		ivs_ep_progress(ivs_entry(pos, struct ivs_ep, domain_link));
}
