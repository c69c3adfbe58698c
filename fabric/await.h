/*
 * Waiting in one call of the caller's for the answer to what was just sent. An MPI's own loop comes by
 * every 30 ns or so, and each look at a line takes it from the core that is about to write it, or from
 * the other thread of the same core its turn. So the first looks after a send are made here, with a
 * rest between two of them, and at most AWAIT_LOOKS for each message sent. Who gets no answer in that
 * time, AWAIT_MISSES times in a row, is not waited for but now and then: what it does meanwhile would
 * take longer for nothing.
 */
#ifndef IVS_AWAIT_H
#define IVS_AWAIT_H

#include "ivshmem.h"
#include "rest.h"
#include "ring.h"

#define AWAIT_LOOKS	32	/* after a message sent: just under a microsecond */
#define AWAIT_CALL	8	/* looks in one call, a divisor of it */
#define AWAIT_MISSES	4
#define AWAIT_PROBE	16	/* messages; of so many to one who does not answer, one is waited for */

/* After a look that found nothing: has a message come from p while we waited? */
static inline bool ivs_await(struct ivs_peer *p)
{
	const uint32_t *line = (const uint32_t *) (const void *) ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask);
	uint32_t lap = ivs_lap_of(p->rx_head, p->rx_shift, p->rx_lap0);
	int i;

	/* It owes us nothing. */
	if (p->tx_head == p->run_head)
		return false;
	if (p->await_head != p->tx_head) {
		p->await_head = p->tx_head;
		p->await_looks = p->await_misses < AWAIT_MISSES || !(++p->await_skipped % AWAIT_PROBE) ? AWAIT_LOOKS : 0;
	}
	if (!p->await_looks)
		return false;
	for (i = 0; i < AWAIT_CALL; i++) {
		ivs_rest();
		if (__atomic_load_n(line, __ATOMIC_ACQUIRE) == lap) {
			p->await_misses = 0;
			return true;
		}
	}
	p->await_looks -= AWAIT_CALL;
	if (!p->await_looks && p->await_misses < AWAIT_MISSES)
		p->await_misses++;
	return false;
}

#endif /* IVS_AWAIT_H */
