/*
 * Spinning: waiting, within one call of the application, for the reply to the message just sent. An MPI's progress loop
 * polls about every 30 ns. Each poll fetches the line from the core that is about to write it. If the sender is another
 * thread of this core, the loop also uses its cycles. Therefore the first polls after a send are made here, with a
 * pause before each, at most IVS_SPIN_POLLS per message sent. After IVS_SPIN_MISSES consecutive timeouts the provider
 * spins only on every IVS_SPIN_PROBE-th message, because the peer is busy.
 */
#ifndef IVS_SPIN_H
#define IVS_SPIN_H

#include "ring/cpu_relax.h"
#include "ring/ring.h"
#include "tune.h"

/* Spins after a poll that found nothing. Returns true if a message has arrived from the other rank. */
static inline bool ivs_spin(struct ivs_ring *r)
{
	const struct nm_line *l = ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask);
	const uint32_t *word = (const uint32_t *) (const void *) l;
	uint32_t lap = ivs_lap_of(r->rx_head, r->rx_shift, r->rx_lap0);
	int i;

	/* The peer owes no answer. */
	if (r->tx_head == r->run_head)
		return false;
	if (r->spin_head != r->tx_head) {
		r->spin_head = r->tx_head;
		r->spin_polls =
			r->spin_misses < IVS_SPIN_MISSES || !(++r->spin_skipped % IVS_SPIN_PROBE) ? IVS_SPIN_POLLS : 0;
	}
	if (!r->spin_polls)
		return false;
	for (i = 0; i < IVS_SPIN_CALL; i++) {
		ivs_cpu_relax();
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == lap) {
			r->spin_misses = 0;
			return true;
		}
	}
	r->spin_polls -= IVS_SPIN_CALL;
	if (!r->spin_polls && r->spin_misses < IVS_SPIN_MISSES)
		r->spin_misses++;
	return false;
}

#endif /* IVS_SPIN_H */
