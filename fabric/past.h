/* Copies past the caches, for ranks that share none with us. */
#ifndef IVS_PAST_H
#define IVS_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "cost.h"
#include "layout.h"

#define IVS_PAST_MIN	4096	/* bytes, from which it can be the better way */

/* Pieces of messages to a peer and from it; [0] through the caches, [1] past them. */
struct ivs_past {
	struct ivs_cost	write[2];	/* ours into our chunks */
	struct ivs_cost	read[2];	/* the peer's out of its chunks, by us */
	uint32_t	turn;		/* copies so far */
	bool		on;		/* past the caches is the faster one */
};

/* Are copies timed? Not on a CPU that has one way only. */
static inline bool ivs_past_timed(void)
{
	return ivs_copy_past;
}

/*
 * Copies len bytes, IVS_PAST_MIN or more, into a chunk, in the way that is the faster one for the
 * receiver whose ring has ctl, and now and then in the other one, to see. fresh: the chunk was not
 * used before, which tells nothing. Gives IVS_F_PAST and IVS_F_TELL as they are to be sent along.
 */
uint8_t ivs_past_copy(struct ivs_past *past, const struct nm_ring_ctl *ctl, void *dst,
		      const void *src, size_t len, bool fresh);

/* Reading len bytes that came with these flags took so many cycles: tells their sender. */
void ivs_past_tell(struct ivs_past *past, struct nm_ring_ctl *ctl, uint8_t flags, uint64_t cycles,
		   size_t len);

/*
 * About how many cycles a message of len bytes, in pieces of so many, is under way in the way that
 * is taken now, both ends copying at the same time. 0: not known.
 */
uint64_t ivs_past_cycles(const struct ivs_past *past, const struct nm_ring_ctl *ctl, size_t len,
			 size_t piece);

#endif /* IVS_PAST_H */
