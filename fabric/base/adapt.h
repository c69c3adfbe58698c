/*
 * The learner measures which of two ways of doing the same work is faster here. It alternates between both at first,
 * then uses the faster one. Now and then it tries the slower one again, because ranks and VMs may move. Two choices use
 * it: how a piece of a message is copied (ring/nontemporal.c), and whether a message is read directly
 * (proto/cma_policy.c).
 */
#ifndef IVS_ADAPT_H
#define IVS_ADAPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tune.h"

/* The last few costs of one way, in cycles per KiB; 0: not measured yet. */
struct ivs_cost {
	uint32_t last[IVS_COST_LAST];
	uint32_t next; /* index of the oldest entry, modulo IVS_COST_LAST */
};

/* Adds a measurement: len bytes needed this many cycles. */
static inline void ivs_cost_add(struct ivs_cost *cost, uint64_t cycles, size_t len)
{
	cycles = cycles * 1024 / len + 1;
	cost->last[cost->next++ % IVS_COST_LAST] = cycles < UINT32_MAX ? (uint32_t) cycles : UINT32_MAX;
}

/*
 * Returns the least of the last costs, or 0 if none is known. The minimum ignores runs that were disturbed or started
 * with cold caches.
 */
static inline uint32_t ivs_cost_least(const struct ivs_cost *cost)
{
	uint32_t i, min = 0;

	for (i = 0; i < IVS_COST_LAST; i++)
		if (cost->last[i] && (!min || cost->last[i] < min))
			min = cost->last[i];
	return min;
}

/* The choice between way 0 and way 1. */
struct ivs_adapt {
	uint32_t turn; /* uses so far */
	bool on;       /* way 1 is the faster one */
};

/* How a choice is learned. */
struct ivs_adapt_rate {
	uint32_t learn;	  /* first uses, which alternate between the ways */
	uint32_t unknown; /* uses that may alternate while a cost is not known */
	uint32_t probe;	  /* after that, one use in this many tries the slower way */
	uint32_t margin;  /* the choice changes if the other way is faster by one part in this many */
};

/* Compares the costs of the two ways, in the same unit. A cost of 0 is not known: then the choice stays. */
static inline void ivs_adapt_compare(struct ivs_adapt *a, const struct ivs_adapt_rate *rate, uint64_t cost0,
				     uint64_t cost1)
{
	if (cost0 && cost1)
		a->on = a->on ? cost1 * (rate->margin - 1) < cost0 * rate->margin
			      : cost1 * rate->margin < cost0 * (rate->margin - 1);
}

/* Counts one use and returns the way for it. known: the costs of both ways are known. */
static inline bool ivs_adapt_next(struct ivs_adapt *a, const struct ivs_adapt_rate *rate, bool known)
{
	uint32_t turn = a->turn++;

	if (turn < rate->learn || (!known && turn < rate->unknown))
		return turn % 2 == 0;
	return a->on != (turn % rate->probe == 0);
}

/* How messages to a peer are sent; way 0: through bounce buffers, way 1: the peer reads them directly. */
struct ivs_cma_policy {
	struct ivs_cost cost[IVS_CMA_POLICY_CLASSES]; /* costs of way 1, from the RTS to the ACK */
	struct ivs_adapt way[IVS_CMA_POLICY_CLASSES];
};

#endif /* IVS_ADAPT_H */
