/* Finding, connecting, watching and ending peers. */
#ifndef IVS_PROTO_PEER_H
#define IVS_PROTO_PEER_H

#include "object/peers.h"

/* Returns the peer in this slot with this epoch, and creates it if it is unknown. Returns NULL without memory. */
struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch);
/* Returns the peer with this address, and creates it if it is unknown. Returns NULL without memory. */
struct ivs_peer *ivs_peer_by_addr(struct ivs_ep *ep, const struct ivs_addr *addr);
/* Returns the peer of an entry of the AV, or NULL and a negative *err, -FI_EAGAIN if it does not exist yet. */
struct ivs_peer *ivs_peer_lookup(struct ivs_ep *ep, fi_addr_t addr, int *err);
/* Returns the peer in slot, and receives from the ring that it shows from now on. Returns NULL if it shows none. */
struct ivs_peer *ivs_peer_attach(struct ivs_ep *ep, uint32_t slot);

int ivs_peer_connect(struct ivs_peer *peer);
/* Ends all operations with a condemned peer. A peer that has left is ended once all its messages were received. */
void ivs_peer_reap(struct ivs_peer *peer);

void ivs_peer_inserted(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_removed(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_free(struct ivs_peer *peer);
/* Checks now and then whether the peers that operations wait for are alive. */
void ivs_peer_check(struct ivs_ep *ep);

/* Returns the connected peer at addr, or NULL and a negative *err, -FI_EAGAIN if it is not connected yet. */
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
