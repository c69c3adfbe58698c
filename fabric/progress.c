/* Looking for what has arrived. */
#include "inner.h"
#include "proto.h"

#define TURN_TICKS	16	/* one slot in turn every so many calls */
#define CHECK_TICKS	4096

/* Puts p among the rings that are looked at each time. */
static void heat(struct ivs_ep *ep, struct ivs_peer *p)
{
	int i, oldest = 0;

	if (p->hot || !p->rx_ring)
		return;
	if (ep->hot_count < IVS_HOT_MAX) {
		oldest = ep->hot_count++;
	} else {
		for (i = 1; i < IVS_HOT_MAX; i++)
			if (ep->hot[i]->used < ep->hot[oldest]->used)
				oldest = i;
		ep->hot[oldest]->hot = false;
		__atomic_store_n(&ep->hot[oldest]->rx_ctl->polled, 0, __ATOMIC_RELAXED);
		/* Once more, in case its sender has just seen that it was polled. */
		__atomic_store_n(&ep->me->activity[ep->hot[oldest]->slot % 64], 1,
				 __ATOMIC_RELAXED);
	}
	ep->hot[oldest] = p;
	p->hot = true;
	p->used = ++ep->clock;
	__atomic_store_n(&p->rx_ctl->polled, 1, __ATOMIC_RELAXED);
}

static void look(struct ivs_ep *ep, uint32_t slot)
{
	struct ivs_peer *p = ep->by_slot[slot];

	if (!p || !p->rx_ring)
		p = ivs_ring_attach(ep, slot);
	if (p && p->rx_ring && !p->hot &&
	    (ivs_ring_poll(ep, p) || ivs_ring_pending(p)) && p->rx_ring)
		heat(ep, p);
}

/* Somebody whose ring we do not look at has sent something. */
static void __attribute__((noinline)) activity(struct ivs_ep *ep)
{
	uint32_t group, slot, slots = ep->domain->region->geo.slots;

	for (group = 0; group < 64; group++) {
		if (!__atomic_load_n(&ep->me->activity[group], __ATOMIC_RELAXED))
			continue;
		__atomic_store_n(&ep->me->activity[group], 0, __ATOMIC_RELAXED);
		/* Before the rings are read: what comes later sets it again. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		for (slot = group; slot < slots; slot += 64) {
			struct ivs_peer *p = ep->by_slot[slot];

			/* The ring may be that of the slot's next owner. */
			if (p && p->rx_ring && !p->hot && p->channel != IVS_CHAN_DEAD)
				look(ep, slot);
			else if (!p || !p->rx_ring)
				look(ep, slot);
		}
	}
}

static inline bool any_activity(const struct nm_slot *me)
{
	const uint64_t *w = (const uint64_t *) (const void *) me->activity;

	return __atomic_load_n(&w[0], __ATOMIC_RELAXED) | __atomic_load_n(&w[1], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[2], __ATOMIC_RELAXED) | __atomic_load_n(&w[3], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[4], __ATOMIC_RELAXED) | __atomic_load_n(&w[5], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[6], __ATOMIC_RELAXED) | __atomic_load_n(&w[7], __ATOMIC_RELAXED);
}

void ivs_ep_progress(struct ivs_ep *ep)
{
	struct ivs_list *pos, *tmp;
	int i, n;

	if (unlikely(!ep->enabled))
		return;
	for (i = 0; i < ep->hot_count; i++) {
		struct ivs_peer *p = ep->hot[i];

		n = ivs_ring_poll(ep, p);
		if (n)
			p->used = ++ep->clock;
	}
	if (likely(ep->me != NULL)) {
		if (unlikely(any_activity(ep->me)))
			activity(ep);
		if (unlikely(!(++ep->ticks % TURN_TICKS))) {
			look(ep, ep->turn);
			if (++ep->turn == ep->domain->region->geo.slots)
				ep->turn = 0;
			if (unlikely(!(ep->ticks % CHECK_TICKS)))
				ivs_peer_check(ep);
		}
	}
	if (unlikely(ep->domain->inner != NULL))
		ivs_inner_poll(ep);
	if (unlikely(!ivs_list_empty(&ep->active)))
		ivs_list_each_safe(pos, tmp, &ep->active)
			ivs_peer_pump(ivs_entry(pos, struct ivs_peer, active));
}

void ivs_domain_progress(struct ivs_domain *domain)
{
	struct ivs_list *pos;

	ivs_list_each(pos, &domain->eps)
		ivs_ep_progress(ivs_entry(pos, struct ivs_ep, domain_link));
}
