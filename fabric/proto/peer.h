/* Peers: found, connected, and watched. object/upcall.h has those calls that lower folders make. */
#ifndef IVS_PROTO_PEER_H
#define IVS_PROTO_PEER_H

#include "object/ep.h"
#include "object/upcall.h"

int ivs_peer_connect(struct ivs_peer *peer);

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
	if (p->channel == IVS_CHAN_DEAD) {
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
