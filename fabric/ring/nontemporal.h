/* Non-temporal copies, for ranks that share no cache with us. */
#ifndef IVS_NONTEMPORAL_H
#define IVS_NONTEMPORAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "base/adapt.h"
#include "ring/copy.h"
#include "tune.h"

/* Pieces of messages to a peer and from it; way 0: in the caches, way 1: non-temporally. */
struct ivs_nt {
	struct ivs_cost write[2]; /* ours into our bounce buffers */
	struct ivs_cost read[2];  /* the peer's out of its bounce buffers, by us */
	struct ivs_adapt way;
};

/* Are copies timed? Not on a CPU that has one way only. */
static inline bool ivs_nt_timed(void)
{
	return ivs_copy_nt;
}

/*
 * Copies len bytes, IVS_NT_MIN or more, into a bounce buffer, in the way that is the faster one for the
 * receiver whose ring has ctl, and now and then in the other one, to see. fresh: the bounce buffer was not
 * used before, and its timing says nothing. Returns IVS_F_NT and IVS_F_TIME as they are to be sent along.
 */
uint8_t ivs_nt_copy(struct ivs_nt *nt, const struct nm_ring_ctl *ctl, void *dst, const void *src, size_t len,
		    bool fresh);

/*
 * Would the next ivs_nt_copy() be as any other copy is, and not timed? Then it counts as done: the caller makes that copy
 * by itself.
 */
static inline bool ivs_nt_plain(struct ivs_nt *nt)
{
	if (!ivs_nt_timed())
		return true;
	if (nt->way.on || nt->way.turn < IVS_ADAPT_LEARN || !(nt->way.turn % (IVS_NT_PROBE / 2)))
		return false;
	nt->way.turn++;
	return true;
}

/* Reports to the sender how many cycles it took to read len bytes that came with these flags. */
void ivs_nt_report(struct ivs_nt *nt, struct nm_ring_ctl *ctl, uint8_t flags, uint64_t cycles, size_t len);

/*
 * Estimates the cycles that a message of len bytes, in pieces of `piece` bytes, takes in the way that
 * is taken now, with both ends copying at the same time. 0: not known.
 */
uint64_t ivs_nt_cycles(const struct ivs_nt *nt, const struct nm_ring_ctl *ctl, size_t len, size_t piece);

#endif /* IVS_NONTEMPORAL_H */
