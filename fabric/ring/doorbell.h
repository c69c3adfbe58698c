/* Wakes sleeping ranks of this VM. */
#ifndef IVS_DOORBELL_H
#define IVS_DOORBELL_H

#include "ring/ring.h"

/* Opens this rank's doorbell, under the domain's lock. Returns false if nobody can wake this rank. */
bool ivs_doorbell_open(struct ivs_home *h);
void ivs_doorbell_close(struct ivs_home *h);
/* Discards the rings so far. */
void ivs_doorbell_drain(struct ivs_home *h);
/* Wakes a peer that has shown that it sleeps, or sets the flag in its slot that it cannot be woken by this rank. */
void ivs_doorbell_ring(struct ivs_ring *r);

/* Wakes the peer if it sleeps. */
static inline void ivs_doorbell_check(struct ivs_ring *r)
{
	const struct nm_slot *s = &r->home->region->slots[r->slot];

	if (unlikely(__atomic_load_n(&s->asleep, __ATOMIC_RELAXED)))
		ivs_doorbell_ring(r);
}

#endif /* IVS_DOORBELL_H */
