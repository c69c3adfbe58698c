/*
 * The learner: which of two ways of doing the same is the faster one here, as measured. Both are taken by turns
 * at first. Then the faster one is, and now and then the other, since ranks and VMs may move. Two choices use it:
 * how a piece of a message is copied (ring/nontemporal.c), and whether a message is read (proto/cma_policy.c).
 */
#ifndef IVS_ADAPT_H
#define IVS_ADAPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tune.h"

/* What the last few of one way took: cycles for 1 KiB, 0: there was none yet. */
struct ivs_cost {
	uint32_t last[IVS_COST_LAST];
	uint32_t next; /* which is the oldest, modulo IVS_COST_LAST */
};

/* Adds one more, of len bytes, that took this many cycles. */
static inline void ivs_cost_add(struct ivs_cost *cost, uint64_t cycles, size_t len)
{
	cycles = cycles * 1024 / len + 1;
	cost->last[cost->next++ % IVS_COST_LAST] = cycles < UINT32_MAX ? (uint32_t) cycles : UINT32_MAX;
}

/* The least of the last ones, 0: not known. A disturbed one, or one new to the caches, does not count. */
static inline uint32_t ivs_cost_least(const struct ivs_cost *cost)
{
	uint32_t i, min = 0;

	for (i = 0; i < IVS_COST_LAST; i++)
		if (cost->last[i] && (!min || cost->last[i] < min))
			min = cost->last[i];
	return min;
}

/* Ways 0 and 1 of doing one thing. */
struct ivs_adapt {
	uint32_t turn; /* times so far */
	bool on;       /* way 1 is the faster one */
};

/* How a choice is learned. */
struct ivs_adapt_rate {
	uint32_t learn;	  /* times at first, alternating between the ways */
	uint32_t unknown; /* times by turns at most, while a cost is not known */
	uint32_t probe;	  /* times, of which one goes the other way after that */
	uint32_t margin;  /* the other way must be faster by one in this many */
};

/* Compares the costs of the two ways, in the same unit. 0: not known, nothing changes. */
static inline void ivs_adapt_compare(struct ivs_adapt *a, const struct ivs_adapt_rate *rate, uint64_t cost0,
				     uint64_t cost1)
{
	if (cost0 && cost1)
		a->on = a->on ? cost1 * (rate->margin - 1) < cost0 * rate->margin
			      : cost1 * rate->margin < cost0 * (rate->margin - 1);
}

/* Counts one more, and returns the way that it takes. known: both costs are. */
static inline bool ivs_adapt_next(struct ivs_adapt *a, const struct ivs_adapt_rate *rate, bool known)
{
	uint32_t turn = a->turn++;

	if (turn < rate->learn || (!known && turn < rate->unknown))
		return turn % 2 == 0;
	return a->on != (turn % rate->probe == 0);
}

/* Messages to a peer; way 0: through bounce buffers, way 1: it reads them. */
struct ivs_cma_policy {
	struct ivs_cost cost[IVS_CMA_POLICY_CLASSES]; /* of way 1, from the RTS to the ACK */
	struct ivs_adapt way[IVS_CMA_POLICY_CLASSES];
};

#endif /* IVS_ADAPT_H */
