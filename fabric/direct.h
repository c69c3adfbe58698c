/* Which messages of middling size a neighbour reads directly. */
#ifndef IVS_DIRECT_H
#define IVS_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cost.h"

#define IVS_DIRECT_SURE		((size_t) 256 << 10)	/* bytes from which it always does */
#define IVS_DIRECT_CLASSES	5	/* of sizes: powers of two below that, 8 KiB and less the first */

/* To one peer. */
struct ivs_direct {
	struct ivs_cost	cost[IVS_DIRECT_CLASSES]; /* from the announcement to the receiver's word */
	uint32_t	turn[IVS_DIRECT_CLASSES];	/* messages so far */
};

/*
 * Is a message of len bytes, less than IVS_DIRECT_SURE, to be read directly? copies: cycles that it
 * is under way through chunks, 0: not known. alone: none is on its way, and now and then
 * the answer is the other one, to see.
 */
bool ivs_direct_better(struct ivs_direct *direct, size_t len, uint64_t copies, bool alone);

/* One that was alone has been read after so many cycles. */
void ivs_direct_took(struct ivs_direct *direct, size_t len, uint64_t cycles);

#endif /* IVS_DIRECT_H */
