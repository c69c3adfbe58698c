/*
 * Waiting, within one call of the caller's, for the answer to what was just sent. An MPI's own loop
 * looks every 30 ns or so, and each look takes the line from the core that is about to write it; and where
 * the sender is another thread of this core, the loop takes its turns. So the first looks after a send
 * are made here, with a rest before each, at most IVS_AWAIT_LOOKS for a message sent. A peer that did not
 * answer in that time IVS_AWAIT_MISSES times in a row is waited for now and then only: its rank has other
 * things to do, and so has ours.
 */
#ifndef IVS_AWAIT_H
#define IVS_AWAIT_H

#include "ivshmem.h"
#include "rest.h"
#include "ring.h"

#define IVS_AWAIT_LOOKS	32	/* after a message sent: just under a microsecond */
#define IVS_AWAIT_CALL	8	/* looks in one call, a divisor of it */
#define IVS_AWAIT_MISSES	4
#define IVS_AWAIT_PROBE	16	/* messages; of so many to one who does not answer, one is waited for */

/* After a look that found nothing: has a message come from p while we waited? */
static inline bool ivs_await(struct ivs_peer *p)
{
	const struct nm_line *l = ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask);
	const uint32_t *word = (const uint32_t *) (const void *) l;
	uint32_t lap = ivs_lap_of(p->rx_head, p->rx_shift, p->rx_lap0);
	int i;

	/* It owes us nothing. */
	if (p->tx_head == p->run_head)
		return false;
	if (p->await_head != p->tx_head) {
		p->await_head = p->tx_head;
		p->await_looks = p->await_misses < IVS_AWAIT_MISSES ||
				 !(++p->await_skipped % IVS_AWAIT_PROBE) ? IVS_AWAIT_LOOKS : 0;
	}
	if (!p->await_looks)
		return false;
	for (i = 0; i < IVS_AWAIT_CALL; i++) {
		ivs_rest();
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == lap) {
			p->await_misses = 0;
			return true;
		}
	}
	p->await_looks -= IVS_AWAIT_CALL;
	if (!p->await_looks && p->await_misses < IVS_AWAIT_MISSES)
		p->await_misses++;
	return false;
}

#endif /* IVS_AWAIT_H */
