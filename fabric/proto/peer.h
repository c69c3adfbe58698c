/* Peers: found, connected, watched, and ended. */
#ifndef IVS_PROTO_PEER_H
#define IVS_PROTO_PEER_H

#include "object/peers.h"

/* Returns the peer in this slot with this epoch, and creates it if it is unknown. NULL: out of memory. */
struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch);
/* Returns the peer with this address, and creates it if it is unknown. NULL: out of memory. */
struct ivs_peer *ivs_peer_by_addr(struct ivs_ep *ep, const struct ivs_addr *addr);
/* The peer of an entry of the AV. NULL and a negative *err: there is none, or not yet (-FI_EAGAIN). */
struct ivs_peer *ivs_peer_lookup(struct ivs_ep *ep, fi_addr_t addr, int *err);
/* progress.c: the peer in slot, once we receive from the ring that it has shown to us. NULL: there is none. */
struct ivs_peer *ivs_peer_attach(struct ivs_ep *ep, uint32_t slot);

int ivs_peer_connect(struct ivs_peer *peer);
/* Ends all that is under way with a condemned peer; one that has left by itself, once all is received that it had sent. */
void ivs_peer_reap(struct ivs_peer *peer);

void ivs_peer_inserted(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_removed(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_free(struct ivs_peer *peer);
/* Checks now and then whether the peers that owe us something still live. */
void ivs_peer_check(struct ivs_ep *ep);

/* The connected peer at addr; NULL and *err if there is none, -FI_EAGAIN: not yet. */
static inline struct ivs_peer *ivs_peer_get(struct ivs_ep *ep, fi_addr_t addr, int *err)
{
	struct ivs_peer *p;

	if (likely(addr < ep->peers_size && (p = ep->peers[addr]) &&
		   (p->channel == IVS_CHAN_RING || p->channel == IVS_CHAN_CORE)))
		return p;
	p = ivs_peer_lookup(ep, addr, err);
	if (!p)
		return NULL;
	if (p->channel == IVS_CHAN_DEAD || p->condemned) {
		*err = -FI_EIO;
		return NULL;
	}
	if (p->channel == IVS_CHAN_NONE) {
		*err = ivs_peer_connect(p);
		if (*err)
			return NULL;
	}
	return p;
}

#endif /* IVS_PROTO_PEER_H */
