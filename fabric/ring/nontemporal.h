/* Non-temporal copies, for ranks that share no cache with this one. */
#ifndef IVS_NONTEMPORAL_H
#define IVS_NONTEMPORAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "base/adapt.h"
#include "ring/copy.h"
#include "tune.h"

/* Costs of pieces of messages to and from a peer; way 0: through the caches, way 1: non-temporally. */
struct ivs_nt {
	struct ivs_cost write[2]; /* our writes into our bounce buffers */
	struct ivs_cost read[2];  /* our reads from the peer's bounce buffers */
	struct ivs_adapt way;
};

/* Returns true if copies are timed: not on a CPU that has one way only. */
static inline bool ivs_nt_timed(void)
{
	return ivs_copy_nt;
}

/*
 * Copies len bytes, IVS_NT_MIN or more, into a bounce buffer in the faster way for the receiver whose ring has ctl. Now
 * and then it measures the other way. fresh: the bounce buffer was not used before, which makes its timing useless.
 * Returns the flags IVS_F_NT and IVS_F_TIME that are to be sent with the message.
 */
uint8_t ivs_nt_copy(struct ivs_nt *nt, const struct nm_ring_ctl *ctl, void *dst, const void *src, size_t len,
		    bool fresh);

/*
 * Returns true if the next ivs_nt_copy() would be an ordinary copy that is not timed. It then counts as done, and the
 * caller makes that copy.
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

/* Reports to the sender how many cycles were needed to read len bytes that came with these flags. */
void ivs_nt_report(struct ivs_nt *nt, struct nm_ring_ctl *ctl, uint8_t flags, uint64_t cycles, size_t len);

/*
 * Estimates the cycles of a message of len bytes, in pieces of `piece` bytes, in the current way, with both ends
 * copying at the same time. Returns 0 if not known.
 */
uint64_t ivs_nt_cycles(const struct ivs_nt *nt, const struct nm_ring_ctl *ctl, size_t len, size_t piece);

#endif /* IVS_NONTEMPORAL_H */
