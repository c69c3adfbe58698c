/* Waking ranks of this VM that sleep. */
#ifndef IVS_BELL_H
#define IVS_BELL_H

#include "ivshmem.h"

/* Opens what others ring, under the domain's lock. false: nobody can wake this rank. */
bool ivs_bell_open(struct ivs_ep *ep);
void ivs_bell_close(struct ivs_ep *ep);
/* Forgets the rings so far. */
void ivs_bell_drain(struct ivs_ep *ep);
/* Wakes a peer that has shown that it sleeps, or tells it that we cannot. */
void ivs_bell_ring(struct ivs_peer *peer);

/* As that, if the peer does sleep. */
static inline void ivs_bell_look(struct ivs_peer *peer)
{
	const struct nm_slot *s = &peer->ep->domain->region->slots[peer->slot];

	if (unlikely(__atomic_load_n(&s->asleep, __ATOMIC_RELAXED)))
		ivs_bell_ring(peer);
}

#endif /* IVS_BELL_H */
