/* What the last few of something took. */
#ifndef IVS_COST_H
#define IVS_COST_H

#include <stddef.h>
#include <stdint.h>

#define IVS_COST_LAST	4	/* that count */

/* Cycles for 1 KiB, 0: there was none yet. */
struct ivs_cost {
	uint32_t	last[IVS_COST_LAST];
	uint32_t	next;		/* which is the oldest, modulo IVS_COST_LAST */
};

/* One more, of len bytes, took so many cycles. */
static inline void ivs_cost_add(struct ivs_cost *cost, uint64_t cycles, size_t len)
{
	cycles = cycles * 1024 / len + 1;
	cost->last[cost->next++ % IVS_COST_LAST] = cycles < UINT32_MAX ? (uint32_t) cycles : UINT32_MAX;
}

/* The least of the last ones, 0: not known. What was disturbed, or new to the caches, does not count. */
static inline uint32_t ivs_cost_least(const struct ivs_cost *cost)
{
	uint32_t i, min = 0;

	for (i = 0; i < IVS_COST_LAST; i++)
		if (cost->last[i] && (!min || cost->last[i] < min))
			min = cost->last[i];
	return min;
}

#endif /* IVS_COST_H */
