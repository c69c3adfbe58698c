/* Waking ranks of this VM that sleep. */
#ifndef IVS_DOORBELL_H
#define IVS_DOORBELL_H

#include "object/ep.h"

/* Opens what others ring, under the domain's lock. false: nobody can wake this rank. */
bool ivs_doorbell_open(struct ivs_ep *ep);
void ivs_doorbell_close(struct ivs_ep *ep);
/* Forgets the rings so far. */
void ivs_doorbell_drain(struct ivs_ep *ep);
/* Wakes a peer that has shown that it sleeps, or sets the flag that says that we cannot. */
void ivs_doorbell_ring(struct ivs_peer *peer);

/* As that, if the peer does sleep. */
static inline void ivs_doorbell_check(struct ivs_peer *peer)
{
	const struct nm_slot *s = &peer->ep->domain->region->slots[peer->slot];

	if (unlikely(__atomic_load_n(&s->asleep, __ATOMIC_RELAXED)))
		ivs_doorbell_ring(peer);
}

#endif /* IVS_DOORBELL_H */
